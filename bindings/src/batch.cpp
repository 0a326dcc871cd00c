#include "bindings/src/batch.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace headrace::python {

PyBatch take_batch(const BatchView& view, bool read_only) {
  PyBatch batch;
  batch.epoch = view.epoch();
  batch.batch = view.batch();
  batch.private_copy = view.private_copy();
  for (std::size_t f = 0; f < view.fields().size(); ++f) {
    const FieldSpec& spec = view.fields()[f];
    const FieldView from = *view.field(spec.name);
    PyBatch::Field& to = batch.fields.emplace_back();
    to.dtype = spec.dtype;
    to.shape.assign(from.shape.begin(), from.shape.end());
    to.offsets.assign(from.offsets.begin(), from.offsets.end());
    if (spec.kind == FieldKind::kDense && spec.shape.empty()) {
      const auto* values = reinterpret_cast<const std::uint8_t*>(from.data);
      to.scalars.assign(values, values + from.bytes());
    } else {
      to.data = from.data;
      to.writable = !read_only && from.writable != nullptr;
      to.memory = view.keep(f);
    }
  }
  batch.rows = view.all_rows();
  return batch;
}

nb::dlpack::dtype dtype_of(DType dtype, bool bfloat16) {
  switch (dtype) {
    case DType::kUInt8:
      return nb::dtype<std::uint8_t>();
    case DType::kInt8:
      return nb::dtype<std::int8_t>();
    case DType::kInt16:
      return nb::dtype<std::int16_t>();
    case DType::kInt32:
      return nb::dtype<std::int32_t>();
    case DType::kInt64:
      return nb::dtype<std::int64_t>();
    case DType::kFloat16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case DType::kBFloat16:
      if (bfloat16) return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
      return nb::dtype<std::uint16_t>();
    case DType::kFloat32:
      return nb::dtype<float>();
    case DType::kFloat64:
      return nb::dtype<double>();
    case DType::kBool:
      return nb::dtype<bool>();
  }
  throw std::logic_error("an unknown dtype");
}

namespace {

/// An array over memory that `owner` keeps alive; the array deletes `owner` when it is destroyed.
template <class Owner>
nb::object array_over(std::unique_ptr<Owner> owner, const void* data, bool writable,
                      std::span<const std::size_t> shape, DType dtype) {
  nb::capsule capsule(owner.get(), [](void* p) noexcept { delete static_cast<Owner*>(p); });
  (void)owner.release();
  const auto kind = dtype_of(dtype);
  if (!writable)
    return nb::cast(nb::ndarray<nb::numpy, nb::ro>(data, shape.size(), shape.data(), capsule, nullptr, kind));
  return nb::cast(
      nb::ndarray<nb::numpy>(const_cast<void*>(data), shape.size(), shape.data(), capsule, nullptr, kind));
}

template <class T>
nb::object array_of(std::vector<T> values, std::span<const std::size_t> shape, DType dtype) {
  auto owner = std::make_unique<std::vector<T>>(std::move(values));
  const void* data = owner->data();
  return array_over(std::move(owner), data, true, shape, dtype);
}

template <class T>
nb::object array_of(std::vector<T> values, DType dtype) {
  const std::size_t size = values.size();
  return array_of(std::move(values), std::span(&size, 1), dtype);
}

template <class T, auto Member>
nb::object of_rows(const std::vector<RowInfo>& rows, DType dtype) {
  std::vector<T> values(rows.size());
  std::transform(rows.begin(), rows.end(), values.begin(),
                 [](const RowInfo& row) { return static_cast<T>(row.*Member); });
  return array_of(std::move(values), dtype);
}

/// For each field (array, offsets or None). Call once per batch: the owners of the memory move into the
/// arrays.
nb::list take_fields(PyBatch& batch) {
  nb::list list;
  for (PyBatch::Field& field : batch.fields) {
    nb::object array;
    if (field.memory) {
      auto keep = std::make_unique<std::shared_ptr<const void>>(std::move(field.memory));
      array = array_over(std::move(keep), field.data, field.writable, field.shape, field.dtype);
    } else {
      array = array_of(std::move(field.scalars), field.shape, field.dtype);
    }
    nb::object offsets = nb::none();
    if (!field.offsets.empty()) offsets = array_of(std::move(field.offsets), DType::kInt64);
    list.append(nb::make_tuple(array, offsets));
  }
  batch.fields.clear();
  return list;
}

}  // namespace

nb::object valid_of(const std::vector<RowInfo>& rows) {
  return of_rows<std::uint8_t, &RowInfo::valid>(rows, DType::kBool);
}
nb::object replaced_of(const std::vector<RowInfo>& rows) {
  return of_rows<std::uint8_t, &RowInfo::replaced>(rows, DType::kBool);
}
nb::object sample_index_of(const std::vector<RowInfo>& rows) {
  return of_rows<std::int64_t, &RowInfo::sample_index>(rows, DType::kInt64);
}

void bind_batch(nb::module_& module) {
  nb::class_<PyBatch>(module, "Batch")
      .def_ro("epoch", &PyBatch::epoch)
      .def_ro("batch", &PyBatch::batch)
      .def_ro("private_copy", &PyBatch::private_copy)
      .def("take_fields", &take_fields)
      .def("valid", [](const PyBatch& batch) { return valid_of(batch.rows); })
      .def("replaced", [](const PyBatch& batch) { return replaced_of(batch.rows); })
      .def("sample_index", [](const PyBatch& batch) { return sample_index_of(batch.rows); });
}

}  // namespace headrace::python
