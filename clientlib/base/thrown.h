// What an exception says, whatever its type: for the barriers at the top of threads.
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
