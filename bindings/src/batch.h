// A batch for Python: its fields, in private memory or in the slot, and its rows.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <nanobind/ndarray.h>

#include "bindings/src/bindings.h"

namespace headrace::python {

struct PyBatch {
  PyBatch() = default;
  PyBatch(PyBatch&&) = default;
  PyBatch& operator=(PyBatch&&) = default;

  struct Field {
    std::shared_ptr<const void> memory;  ///< keeps `data` alive; null: the values are in `scalars`
    const std::byte* data = nullptr;
    bool writable = false;
    DType dtype = DType::kUInt8;
    std::vector<std::uint8_t> scalars;
    std::vector<std::size_t> shape;
    std::vector<std::int64_t> offsets;  ///< ragged only; always a copy
  };

  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
  bool private_copy = true;  ///< see BatchView::private_copy()
  std::vector<Field> fields;
  std::vector<RowInfo> rows;
};

/// Call without the GIL. Fields with one value per row (labels) are copied, because a loop may collect them
/// and must not hold slots by that. `read_only`: the other arrays are read-only even if the memory is
/// writable.
PyBatch take_batch(const BatchView& view, bool read_only);

/// `bfloat16`: whether the framework supports that type; if not (numpy), it becomes uint16.
nb::dlpack::dtype dtype_of(DType dtype, bool bfloat16 = false);

// Numpy arrays with one value for each row.
nb::object valid_of(const std::vector<RowInfo>& rows);
nb::object replaced_of(const std::vector<RowInfo>& rows);
nb::object sample_index_of(const std::vector<RowInfo>& rows);

}  // namespace headrace::python
