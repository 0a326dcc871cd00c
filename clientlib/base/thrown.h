// The message of any exception, for the catch-all handlers of threads.
#pragma once

#include <exception>

namespace headrace {

/// The text of the exception that is being handled; valid until its handler ends. Call it in a handler only.
inline const char* thrown() noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace headrace
