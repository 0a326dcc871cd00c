#include "server/log/log.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "server/log/logger.h"
#include "server/log/recent.h"

namespace headrace::server::log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::kTrace:
      return spdlog::level::trace;
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

/// A program that uses a Maker keeps spdlog's default logger for itself.
std::shared_ptr<spdlog::logger>& own() {
  static std::shared_ptr<spdlog::logger> made;
  return made;
}

spdlog::level::level_enum own_level = spdlog::level::info;

}  // namespace

spdlog::logger& logger() {
  return own() ? *own() : *spdlog::default_logger_raw();
}

void set_sink(std::shared_ptr<spdlog::sinks::sink> sink) {
  const spdlog::sinks_init_list sinks = {std::move(sink), recent_sink()};
  auto made = std::make_shared<spdlog::logger>("headrace", sinks);
  made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
  made->set_level(own_level);
  own() = std::move(made);
}

void set_level(Level level) {
  own_level = spdlog_level(level);
  if (own()) own()->set_level(own_level);
}

void write(Level level, fmt::string_view format, fmt::format_args args) noexcept {
  try {
    spdlog::logger& to = logger();
    const spdlog::level::level_enum at = spdlog_level(level);
    if (to.should_log(at)) to.log(at, fmt::vformat(format, args));
  } catch (...) {  // no memory
  }
}

}  // namespace headrace::server::log
