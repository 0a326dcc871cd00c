#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/src/bindings.h"

namespace headrace::python {

void raise(const Error& error) {
  nb::object exception = nb::module_::import_("headrace.errors")
                             .attr("from_code")(std::string(name_of(error.code)), error.message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

bool signal_raised() {
  const nb::gil_scoped_acquire gil;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

std::shared_ptr<nb::object> shared(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* p) {
            const nb::gil_scoped_acquire gil;
            delete p;
          }};
}

namespace {

std::mutex deferred_mutex;
std::vector<PyObject*> deferred_references;  // guarded by deferred_mutex

}  // namespace

std::shared_ptr<nb::object> shared_with_threads(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* p) {
            if (PyGILState_Check() != 0) {
              delete p;
              return;
            }
            {
              const std::lock_guard lock(deferred_mutex);
              deferred_references.push_back(p->release().ptr());
            }
            delete p;
          }};
}

void drop_deferred_references() {
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(deferred_mutex);
    objects.swap(deferred_references);
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

std::chrono::milliseconds milliseconds_of(std::string_view argument, double seconds) {
  if (std::isnan(seconds))
    raise({ErrorCode::kInvalidArgument, std::string(argument) + "=nan: expected a number of seconds"});
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e9) * 1000));
}

}  // namespace headrace::python
