#include "bindings/src/device.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/src/batch.h"
#include "clientlib/gpu/device/device_name.h"

namespace headrace::python {
namespace {

Result<gpu::DeviceBlock> allocate_by(const nb::object& allocate, std::size_t bytes) {
  const nb::gil_scoped_acquire gil;
  drop_deferred_references();  // first, because the allocator can reuse the memory of dropped blocks
  try {
    const auto [owner, address] = nb::cast<std::pair<nb::object, std::uintptr_t>>(allocate(bytes));
    return gpu::DeviceBlock{reinterpret_cast<std::byte*>(address), bytes, shared_with_threads(owner)};
  } catch (nb::python_error& error) {
    const bool stops = !error.matches(PyExc_Exception);  // KeyboardInterrupt, SystemExit
    const std::string what = error.what();
    if (stops) error.restore();
    return fail(ErrorCode::kNotEnoughMemory, "the framework cannot allocate " + std::to_string(bytes) +
                                                 " bytes of device memory for a batch: " + what);
  }
}

/// The framework's owner of the batch's memory. None: the loader allocated it.
nb::object block_of(const PyDeviceBatch& my, bool by_framework) {
  return by_framework ? *std::static_pointer_cast<nb::object>(my.batch->block().owner) : nb::none();
}

/// (index, count, bytes) of the batch's part of the owner's memory; see gpu::DeviceBlock.
std::tuple<std::uint32_t, std::uint32_t, std::size_t> part_of(const PyDeviceBatch& my) {
  const gpu::DeviceBlock& block = my.batch->block();
  return {block.index, block.count, block.bytes};
}

/// For each field: (offset in the batch's part of the block, shape, offset of a ragged field's offsets or
/// None).
nb::object layout(const PyDeviceBatch& my) {
  const gpu::DeviceBatch& batch = *my.batch;
  std::vector<std::int64_t> counts(batch.fields().size());
  for (std::size_t f = 0; f < counts.size(); ++f) counts[f] = batch.field(f).shape[0];
  LayoutCache& cache = *my.layout;
  if (cache.fields.is_valid() && cache.counts == counts) return cache.fields;

  nb::list list;
  const std::byte* begin = batch.block().data;
  for (std::size_t f = 0; f < counts.size(); ++f) {
    const gpu::DeviceFieldView field = batch.field(f);
    nb::object offsets = nb::none();
    if (field.offsets != nullptr) offsets = nb::int_(field.offsets - begin);
    list.append(nb::make_tuple(field.data - begin, nb::tuple(nb::cast(field.shape)), offsets));
  }
  cache = {std::move(counts), nb::tuple(list)};
  return cache.fields;
}

/// (kDLCPU, 0) or (kDLCUDA, N).
std::pair<int, int> dlpack_device(const std::string& device) {
  const std::optional<int> ordinal = value_of(gpu::device_ordinal(device));
  return ordinal ? std::pair(nb::device::cuda::value, *ordinal) : std::pair(nb::device::cpu::value, 0);
}

/// An array over a field's values, or over a ragged field's offsets. The caller must have waited for the
/// copy. `bits`: bfloat16 as uint16, for frameworks that have no such type.
nb::object array(const PyDeviceBatch& my, std::size_t at, bool offsets, const std::string& device,
                 bool bits) {
  const gpu::DeviceFieldView field = my.batch->field(at);
  auto* owner = new std::shared_ptr<gpu::DeviceBatch>(my.batch);
  const nb::capsule capsule(
      owner, [](void* p) noexcept { delete static_cast<std::shared_ptr<gpu::DeviceBatch>*>(p); });
  std::vector<std::size_t> shape(field.shape.begin(), field.shape.end());
  if (offsets) shape = {my.batch->rows().size() + 1};
  const auto [type, ordinal] = dlpack_device(device);
  return nb::cast(nb::ndarray<nb::array_api>(
      offsets ? field.offsets : field.data, shape.size(), shape.data(), capsule, nullptr,
      dtype_of(offsets ? DType::kInt64 : field.spec->dtype, !bits), type, ordinal));
}

}  // namespace

void Warnings::put(std::string_view text) {
  const std::lock_guard lock(mutex_);
  texts_.emplace_back(text);
}

void Warnings::report() {
  std::vector<std::string> texts;
  {
    const std::lock_guard lock(mutex_);
    texts.swap(texts_);
  }
  drop_deferred_references();
  for (auto text = texts.begin(); text != texts.end(); ++text) {
    try {
      (*callback_)(nb::str(text->data(), text->size()));
    } catch (nb::python_error& error) {
      error.restore();
      const std::lock_guard lock(mutex_);
      texts_.insert(texts_.begin(), std::next(text), texts.end());
      return;
    }
  }
}

std::unique_ptr<PyDeviceStream> load_on_device(Stream stream, const std::string& device,
                                               std::uint32_t prefetch, nb::object allocate,
                                               std::uintptr_t copy_stream,
                                               std::shared_ptr<Warnings> warnings) {
  gpu::DeviceLoaderOptions options;
  options.engine = {.device = device, .warn = [warnings](std::string_view text) { warnings->put(text); }};
  options.engine.copy_stream = copy_stream;
  options.prefetch = prefetch;
  if (!allocate.is_none())
    options.allocate = [from = shared(std::move(allocate))](std::size_t bytes) {
      return allocate_by(*from, bytes);
    };
  return std::make_unique<PyDeviceStream>(
      without_gil([&] { return gpu::DeviceLoader::open(std::move(stream), options); }),
      [layout = std::make_shared<LayoutCache>()](gpu::DeviceBatch& batch) {
        return PyDeviceBatch{std::make_shared<gpu::DeviceBatch>(std::move(batch)), layout};
      },
      [warnings] { warnings->report(); });
}

void bind_device(nb::module_& module) {
  nb::class_<PyDeviceBatch>(module, "DeviceBatch")
      .def_prop_ro("epoch", [](const PyDeviceBatch& my) { return my.batch->epoch(); })
      .def_prop_ro("batch", [](const PyDeviceBatch& my) { return my.batch->batch(); })
      .def_prop_ro("private_copy", [](const PyDeviceBatch&) { return true; })
      .def("block", &block_of, nb::arg("by_framework"))
      .def("part", &part_of)
      .def("layout", &layout)
      .def("array", &array, nb::arg("field"), nb::arg("offsets"), nb::arg("device"), nb::arg("bits"))
      .def(
          "wait_on",
          [](PyDeviceBatch& my, std::uintptr_t stream) {
            without_gil([&] { return my.batch->wait_on(stream); });
          },
          nb::arg("stream"))
      .def("wait", [](PyDeviceBatch& my) { without_gil([&] { return my.batch->wait(); }); })
      .def("rows", [](const PyDeviceBatch& my) { return my.batch->rows().size(); })
      .def("valid", [](const PyDeviceBatch& my) { return valid_of(my.batch->rows()); })
      .def("replaced", [](const PyDeviceBatch& my) { return replaced_of(my.batch->rows()); })
      .def("sample_index", [](const PyDeviceBatch& my) { return sample_index_of(my.batch->rows()); });
  bind_loop<PyDeviceStream, gpu::DeviceLoader>(module, "DeviceStream")
      .def("device_name",
           [](PyDeviceStream& my) {
             return my.inspect([](gpu::DeviceLoader& loader) { return loader.device_name(); });
           })
      .def("copies", [](PyDeviceStream& my) {
        const gpu::EngineStats stats = my.inspect([](gpu::DeviceLoader& loader) { return loader.stats(); });
        nb::dict dict;
        dict["direct"] = stats.direct_copies;
        dict["staged"] = stats.staged_copies;
        dict["pinned_bytes"] = stats.pinned_bytes;
        return dict;
      });
}

}  // namespace headrace::python
