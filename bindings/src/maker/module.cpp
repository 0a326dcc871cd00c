// The module headrace._maker: batches made in this process. It is apart from headrace._headrace because it
// loads the server's libraries, which other programs do not need.
#include "headrace/maker.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/src/batch.h"
#include "bindings/src/bindings.h"

namespace headrace::python {
namespace {

Maker open(const std::string& config, const std::string& stream, std::uint32_t threads,
           std::vector<std::string> set, const std::string& source, bool caches) {
  const MakerOptions options{.stream = stream,
                             .threads = threads,
                             .set = std::move(set),
                             .interrupt = signal_raised,
                             .source = source,
                             .caches = caches};
  return without_gil([&] { return Maker::open(config, options); });
}

/// Calls `make` and takes its batch, without the GIL.
template <class F>
PyBatch take(F make) {
  return without_gil([&]() -> Result<PyBatch> {
    const Result<BatchView> made = make();
    if (!made) return fail(made.error());
    return take_batch(*made, false);
  });
}

PyBatch rows(const Maker& maker, std::uint64_t epoch, std::uint64_t first, std::uint32_t count) {
  return take([&] { return maker.rows(epoch, first, count); });
}

PyBatch batch(const Maker& maker, std::uint64_t epoch, std::uint64_t number, std::uint32_t world_size,
              std::uint32_t rank) {
  return take([&] { return maker.batch(epoch, number, world_size, rank); });
}

nb::object samples(const Maker& maker, std::uint64_t epoch, std::uint64_t first, std::uint32_t count) {
  auto packed = std::make_unique<std::vector<std::uint8_t>>(
      without_gil([&] { return maker.samples(epoch, first, count); }));
  std::uint8_t* const data = packed->data();
  const std::size_t size = packed->size();
  nb::capsule owner(packed.get(),
                    [](void* p) noexcept { delete static_cast<std::vector<std::uint8_t>*>(p); });
  (void)packed.release();
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t>(data, {size}, owner));
}

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

PyBatch rows_of(const Maker& maker, const Bytes& samples, std::uint64_t epoch, std::uint64_t first,
                std::uint32_t count) {
  return take([&] { return maker.rows_of({samples.data(), samples.size()}, epoch, first, count); });
}

}  // namespace

void bind_maker(nb::module_& module) {
  nb::module_::import_("headrace._headrace");  // has the class of batches
  nb::class_<Maker>(module, "Maker")
      .def("info", [](const Maker& maker) { return to_dict(maker.info()); })
      .def("length",
           [](const Maker& maker, std::uint32_t world_size) { return value_of(maker.length(world_size)); })
      .def("rows", &rows)
      .def("describe_source", [](const Maker& maker) { return value_of(maker.describe_source()); })
      .def("samples", &samples)
      .def("rows_of", &rows_of)
      .def("batch", &batch);
  module.def("open", &open);
}

}  // namespace headrace::python

NB_MODULE(_maker, module) {
  headrace::python::bind_maker(module);
}
