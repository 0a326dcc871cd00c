// Functions that all parts of the module share. Only the bindings use exceptions; the libraries below return
// errors.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <string_view>

#include "headrace/client.h"
#include "headrace/error.h"

namespace headrace::python {

namespace nb = nanobind;

/// Throws headrace.Error, or its subclass for this code.
[[noreturn]] void raise(const Error& error);

template <class T>
T value_of(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// Calls `ask` without the GIL. Throws the exception of a signal's handler, if any, instead of returning the
/// result.
template <class F>
auto without_gil(F ask) {
  auto answer = [&ask] {
    const nb::gil_scoped_release no_gil;
    return ask();
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return value_of(std::move(answer));
}

/// Runs pending signal handlers with the GIL, which it acquires. True if one raised, such as
/// KeyboardInterrupt: the exception is set.
bool signal_raised();

/// Converts seconds, clamped to 0 .. 1e9. Throws INVALID_ARGUMENT, which names the argument, for NaN. Call
/// with the GIL.
std::chrono::milliseconds milliseconds_of(std::string_view argument, double seconds);

/// Shared ownership of an object. The last owner acquires the GIL to drop the reference.
std::shared_ptr<nb::object> shared(nb::object object);
/// The same for threads that must not wait for the GIL: their references are deferred until
/// drop_deferred_references().
std::shared_ptr<nb::object> shared_with_threads(nb::object object);
/// Drops the references that threads without the GIL have deferred. Call with the GIL.
void drop_deferred_references();

nb::dict to_dict(const StreamInfo& info);
nb::list to_list(const std::vector<FieldSpec>& fields);

void bind_batch(nb::module_& module);
void bind_stream(nb::module_& module);
void bind_device(nb::module_& module);
void bind_client(nb::module_& module);
void bind_digest(nb::module_& module);

}  // namespace headrace::python
