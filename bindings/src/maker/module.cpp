// The module headrace._maker: batches made in this process. It is apart from headrace._headrace because it
// loads the server's libraries, which other programs do not need.
#include "headrace/maker.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings/src/batch.h"
#include "bindings/src/bindings.h"

namespace headrace::python {
namespace {

Maker open(const std::string& config, const std::string& stream, std::uint32_t threads,
           std::vector<std::string> set) {
  const MakerOptions options{
      .stream = stream, .threads = threads, .set = std::move(set), .interrupt = signal_raised};
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

}  // namespace

void bind_maker(nb::module_& module) {
  nb::module_::import_("headrace._headrace");  // has the class of batches
  nb::class_<Maker>(module, "Maker")
      .def("info", [](const Maker& maker) { return to_dict(maker.info()); })
      .def("length",
           [](const Maker& maker, std::uint32_t world_size) { return value_of(maker.length(world_size)); })
      .def("rows", &rows)
      .def("batch", &batch);
  module.def("open", &open);
}

}  // namespace headrace::python

NB_MODULE(_maker, module) {
  headrace::python::bind_maker(module);
}
