// The last warnings and errors that were logged, for the status page. Thread safety: any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace spdlog::sinks {
class sink;
}

namespace headrace::server::log {

struct Line {
  std::string time;   ///< UTC, ISO 8601
  std::string level;  ///< "warning" or "error"
  std::string text;
};

/// The last 50, oldest first.
std::vector<Line> recent_warnings();

/// The sink that stores them.
std::shared_ptr<spdlog::sinks::sink> recent_sink();

}  // namespace headrace::server::log
