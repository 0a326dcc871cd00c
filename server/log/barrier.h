// The last barrier of a thread: whatever was thrown is logged, and the thread goes on.
#pragma once

#include <spdlog/spdlog.h>

#include <exception>

namespace headrace::server::log {

/// `what` threw. Never throws itself.
inline void thrown(const char* what, const std::exception& error) noexcept try {
  spdlog::error("{} threw, and goes on: {}", what, error.what());
} catch (const std::exception&) {  // no memory for words either
}

}  // namespace headrace::server::log
