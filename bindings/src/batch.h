// A batch as Python sees it: arrays of its fields, over memory of its own or the slot's, and its rows'
// descriptions.
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
    std::shared_ptr<const void> memory;  ///< keeps `data`; null: `scalars` has it
    const std::byte* data = nullptr;
    bool writable = false;
    DType dtype = DType::kUInt8;
    std::vector<std::uint8_t> scalars;
    std::vector<std::size_t> shape;
    std::vector<std::int64_t> offsets;  ///< ragged only; always a copy
  };

  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
  bool private_copy = true;  ///< as BatchView's
  std::vector<Field> fields;
  std::vector<RowInfo> rows;
};

/// Without the GIL. One value per row (labels) is copied: a loop collects those, and must not hold slots by
/// it. `read_only`: the other arrays cannot be written to, also where the memory could.
PyBatch take_batch(const BatchView& view, bool read_only);

/// `bfloat16`: as such, for who knows it; else, as numpy does not, as uint16.
nb::dlpack::dtype dtype_of(DType dtype, bool bfloat16 = false);

// One value of each row, as numpy arrays.
nb::object valid_of(const std::vector<RowInfo>& rows);
nb::object replaced_of(const std::vector<RowInfo>& rows);
nb::object sample_index_of(const std::vector<RowInfo>& rows);

}  // namespace headrace::python
