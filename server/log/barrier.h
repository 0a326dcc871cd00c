// For a thread's catch-all handler: logs the exception; the thread continues.
#pragma once

#include "clientlib/base/thrown.h"
#include "server/log/log.h"

namespace headrace::server::log {

/// `what` threw the exception that is being handled. Never throws itself. Call it in a handler only.
inline void thrown(const char* what) noexcept {
  error("caught an exception in {}: {}; the thread continues", what, headrace::thrown());
}

}  // namespace headrace::server::log
