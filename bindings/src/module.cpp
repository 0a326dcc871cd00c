#include "bindings/src/bindings.h"
#include "headrace/version.h"

NB_MODULE(_headrace, module) {
  namespace python = headrace::python;
  module.attr("__version__") = headrace::kVersion;
  python::bind_batch(module);
  python::bind_stream(module);
  python::bind_device(module);
  python::bind_client(module);
  python::bind_digest(module);
}
