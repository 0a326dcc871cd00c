// A batch as Python sees it: raw bytes of its fields, either its own or the slot's, and its rows'
// descriptions. headrace/_arrays.py gives the bytes their types and shapes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/src/bindings.h"
#include "bindings/src/buffer_pool.h"

namespace headrace::python {

/// A private buffer that returns to its pool.
struct PooledBuffer {
  std::shared_ptr<BufferPool> pool;
  Buffer buffer;

  PooledBuffer(std::shared_ptr<BufferPool> from, std::size_t bytes)
      : pool(std::move(from)), buffer(pool->take(bytes)) {}
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;
  ~PooledBuffer() { pool->give_back(std::move(buffer)); }
  [[nodiscard]] std::byte* data() const { return buffer.memory.get(); }
};

struct PyBatch {
  PyBatch() = default;
  PyBatch(PyBatch&&) = default;
  PyBatch& operator=(PyBatch&&) = default;

  struct Field {
    std::unique_ptr<PooledBuffer> copy;  ///< null: the slot's own memory, kept by `lease`
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> offsets;  ///< ragged only; always a copy
  };

  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
  bool private_copy = true;  ///< nothing of the slot is referred to
  std::shared_ptr<BatchView::Lease> lease;
  std::vector<Field> fields;
  std::vector<std::uint8_t> valid, replaced;
  std::vector<std::int64_t> sample_index;
};

/// Without the GIL. `zero_copy`: dense non-scalar fields stay on the slot, which stays leased; everything
/// else is copied.
PyBatch take_batch(const BatchView& view, bool zero_copy, const std::shared_ptr<BufferPool>& pool);

}  // namespace headrace::python
