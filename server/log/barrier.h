// The last barrier of a thread: whatever was thrown is logged, and the thread goes on.
#pragma once

#include <spdlog/spdlog.h>

#include "clientlib/base/thrown.h"

namespace headrace::server::log {

/// `what` threw the exception that is being handled. Never throws itself. Call it in a handler only.
inline void thrown(const char* what) noexcept {
  const char* const error = headrace::thrown();
  try {
    spdlog::error("exception in {}, which continues: {}", what, error);
  } catch (...) {  // no memory for words either
  }
}

}  // namespace headrace::server::log
