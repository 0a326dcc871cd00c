#include "bindings/src/stream.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace headrace::python {

void bind_stream(nb::module_& module) {
  bind_loop<PyStream, Stream>(module, "Stream")
      .def("max_leases", [](PyStream& my) { return my.inspect([](Stream& s) { return s.max_leases(); }); })
      .def("live_views", [](PyStream& my) { return my.inspect([](Stream& s) { return s.live_views(); }); });
}

}  // namespace headrace::python
