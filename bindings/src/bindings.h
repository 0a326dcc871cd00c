// What the module's parts share. Exceptions live here and nowhere below.
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

/// Calls `ask` without the GIL; a signal's exception comes before its result.
template <class F>
auto without_gil(F ask) {
  auto answer = [&ask] {
    const nb::gil_scoped_release no_gil;
    return ask();
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return value_of(std::move(answer));
}

/// True if a signal's Python handler raised (KeyboardInterrupt): the exception is set. Takes the GIL.
bool signal_raised();

/// At most 1e9 s, which is for ever. Throws INVALID_ARGUMENT, naming the argument, for NaN. With the GIL.
std::chrono::milliseconds milliseconds_of(std::string_view argument, double seconds);

/// Freed with the GIL, whichever thread lets go last.
std::shared_ptr<nb::object> shared(nb::object object);
/// The same for threads that must not wait for the GIL: what they let go of last is freed by let_go().
std::shared_ptr<nb::object> shared_with_threads(nb::object object);
/// With the GIL.
void let_go();

nb::dict to_dict(const StreamInfo& info);
nb::list to_list(const std::vector<FieldSpec>& fields);

void bind_batch(nb::module_& module);
void bind_stream(nb::module_& module);
void bind_device(nb::module_& module);
void bind_client(nb::module_& module);
void bind_digest(nb::module_& module);

}  // namespace headrace::python
