#include "bindings/src/batch.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstring>

namespace headrace::python {

PyBatch take_batch(const BatchView& view, bool zero_copy, const std::shared_ptr<BufferPool>& pool) {
  PyBatch batch;
  batch.epoch = view.epoch();
  batch.batch = view.batch();
  for (const FieldSpec& spec : view.fields()) {
    const FieldView from = *view.field(spec.name);
    PyBatch::Field& to = batch.fields.emplace_back();
    to.bytes = from.bytes();
    to.shape = from.shape;
    to.offsets.assign(from.offsets.begin(), from.offsets.end());
    if (zero_copy && !spec.shape.empty()) {
      to.data = from.data;
      batch.private_copy = view.private_copy();
      batch.lease = view.lease();
    } else {
      to.copy = std::make_unique<PooledBuffer>(pool, to.bytes);
      to.data = to.copy->data();
      if (to.bytes > 0) std::memcpy(to.copy->data(), from.data, to.bytes);
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

/// (bytes as a uint8 array, shape, offsets or None). Once per batch: private buffers move out.
nb::list take_fields(PyBatch& batch) {
  nb::list list;
  for (PyBatch::Field& field : batch.fields) {
    nb::object bytes;
    const auto* data = reinterpret_cast<const std::uint8_t*>(field.data);
    if (field.copy) {
      auto* own = reinterpret_cast<std::uint8_t*>(field.copy->data());
      bytes = array_over<Bytes>(std::move(field.copy), own, field.bytes);
    } else {
      bytes = array_over<ReadOnlyBytes>(std::make_unique<std::shared_ptr<BatchView::Lease>>(batch.lease),
                                        data, field.bytes);
    }
    nb::object offsets = nb::none();
    if (!field.offsets.empty()) offsets = array_of<Integers>(std::move(field.offsets));
    list.append(nb::make_tuple(bytes, nb::tuple(nb::cast(field.shape)), offsets));
  }
  batch.fields.clear();
  batch.lease.reset();
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
