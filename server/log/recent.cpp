#include "server/log/recent.h"

#include <fmt/chrono.h>
#include <spdlog/sinks/ringbuffer_sink.h>

#include "server/log/sink.h"

namespace headrace::server::log {
namespace {

constexpr std::size_t kLines = 50;

const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt>& buffer() {
  static const auto sink = [] {
    auto made = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kLines);
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return sink;
}

}  // namespace

std::shared_ptr<spdlog::sinks::sink> recent_sink() {
  return buffer();
}

std::vector<Line> recent_warnings() {
  std::vector<Line> lines;
  for (const auto& record : buffer()->last_raw())
    lines.push_back(
        {fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(record.time))),
         record.level == spdlog::level::warn ? "warning" : "error",
         escaped({record.payload.data(), record.payload.size()})});
  return lines;
}

}  // namespace headrace::server::log
