// The server's log: its lines, its level and its sink. Files that log include fmt only: spdlog's headers cost
// 3 s per file.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>

namespace spdlog::sinks {
class sink;
}

namespace headrace::server::log {

enum class Level : std::uint8_t { kTrace, kDebug, kInfo, kWarning, kError, kOff };

enum class Format : std::uint8_t { kText, kJson };

/// From now on, lines go to `sink`.
void set_sink(std::shared_ptr<spdlog::sinks::sink> sink);
/// From now on, lines below `level` are not logged.
void set_level(Level level);

/// A line for which there is no memory is lost.
void write(Level level, fmt::string_view format, fmt::format_args args) noexcept;

template <typename... Args>
void log(Level level, fmt::format_string<Args...> format, Args&&... args) {
  write(level, format, fmt::make_format_args(args...));
}
template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, format, fmt::make_format_args(args...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, format, fmt::make_format_args(args...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, format, fmt::make_format_args(args...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, format, fmt::make_format_args(args...));
}

}  // namespace headrace::server::log
