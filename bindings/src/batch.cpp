#include "bindings/src/batch.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

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
    to.bytes = from.bytes();
    to.shape = from.shape;
    to.offsets.assign(from.offsets.begin(), from.offsets.end());
    if (spec.kind == FieldKind::kDense && spec.shape.empty()) {
      const auto* values = reinterpret_cast<const std::uint8_t*>(from.data);
      to.scalars.assign(values, values + to.bytes);
    } else {
      to.data = from.data;
      to.writable = read_only ? nullptr : from.writable;
      to.memory = view.keep(f);
    }
  }
  for (std::uint32_t row = 0; row < view.rows(); ++row) {
    batch.valid.push_back(view.valid(row) ? 1 : 0);
    batch.replaced.push_back(view.replaced(row) ? 1 : 0);
    batch.sample_index.push_back(static_cast<std::int64_t>(view.sample_index(row)));
  }
  return batch;
}

namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
using ReadOnlyBytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
using Integers = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>;

/// An array over memory that `owner` keeps; the array's end destroys it.
template <class Array, class Owner, class Data>
nb::object array_over(std::unique_ptr<Owner> owner, Data* data, std::size_t size) {
  nb::capsule capsule(owner.get(), [](void* p) noexcept { delete static_cast<Owner*>(p); });
  (void)owner.release();
  return nb::cast(Array(data, {size}, capsule));
}

template <class Array, class T>
nb::object array_of(std::vector<T> values) {
  auto owner = std::make_unique<std::vector<T>>(std::move(values));
  auto* data = owner->data();
  const std::size_t size = owner->size();
  return array_over<Array>(std::move(owner), data, size);
}

/// (bytes as a uint8 array, shape, offsets or None). Once per batch: what keeps the memory moves out.
nb::list take_fields(PyBatch& batch) {
  nb::list list;
  for (PyBatch::Field& field : batch.fields) {
    nb::object bytes;
    if (!field.memory) {
      bytes = array_of<Bytes>(std::move(field.scalars));
    } else {
      auto keep = std::make_unique<std::shared_ptr<const void>>(std::move(field.memory));
      if (field.writable != nullptr)
        bytes =
            array_over<Bytes>(std::move(keep), reinterpret_cast<std::uint8_t*>(field.writable), field.bytes);
      else
        bytes = array_over<ReadOnlyBytes>(std::move(keep), reinterpret_cast<const std::uint8_t*>(field.data),
                                          field.bytes);
    }
    nb::object offsets = nb::none();
    if (!field.offsets.empty()) offsets = array_of<Integers>(std::move(field.offsets));
    list.append(nb::make_tuple(bytes, nb::tuple(nb::cast(field.shape)), offsets));
  }
  batch.fields.clear();
  return list;
}

}  // namespace

void bind_batch(nb::module_& module) {
  nb::class_<PyBatch>(module, "Batch")
      .def_ro("epoch", &PyBatch::epoch)
      .def_ro("batch", &PyBatch::batch)
      .def_ro("private_copy", &PyBatch::private_copy)
      .def("take_fields", &take_fields)
      .def("take_valid", [](PyBatch& batch) { return array_of<Bytes>(std::move(batch.valid)); })
      .def("take_replaced", [](PyBatch& batch) { return array_of<Bytes>(std::move(batch.replaced)); })
      .def("take_sample_index",
           [](PyBatch& batch) { return array_of<Integers>(std::move(batch.sample_index)); });
}

}  // namespace headrace::python
