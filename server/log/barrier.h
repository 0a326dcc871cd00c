// For a thread's catch-all handler: logs the exception; the thread continues.
#pragma once

#include <spdlog/spdlog.h>

#include "clientlib/base/thrown.h"

namespace headrace::server::log {

/// `what` threw the exception that is being handled. Never throws itself. Call it in a handler only.
inline void thrown(const char* what) noexcept {
  const char* const error = headrace::thrown();
  try {
    spdlog::error("caught an exception in {}: {}; the thread continues", what, error);
  } catch (...) {  // no memory for the message either
  }
}

}  // namespace headrace::server::log
