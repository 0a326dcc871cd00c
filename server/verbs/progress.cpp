#include "server/verbs/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "clientlib/base/human.h"

namespace headrace::server::verbs {
namespace {

constexpr std::chrono::milliseconds kBarPause{100};
constexpr std::chrono::seconds kLinePause{3};
constexpr std::size_t kBarWidth = 24;

}  // namespace

Progress::Progress(std::string what, std::uint64_t begin, std::uint64_t total)
    : what_(std::move(what)), begin_(begin), total_(total), terminal_(::isatty(2) == 1) {}

Progress::~Progress() {
  if (terminal_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::update(std::uint64_t done, std::uint64_t bytes) {
  const auto now = Clock::now();
  if (now - shown_ < (terminal_ ? Clock::duration(kBarPause) : Clock::duration(kLinePause))) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done - begin_) / seconds;
  const std::string speed =
      bytes == 0 ? ""
                 : fmt::format("  {}/s",
                               human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / seconds)));
  if (total_ == 0) {
    fmt::print(stderr, "{}{}: {}  {:.0f} samples/s{}{}", terminal_ ? "\r" : "", what_, done, rate, speed,
               terminal_ ? "\x1b[K" : "\n");
    std::fflush(stderr);
    return;
  }
  const double part = static_cast<double>(done) / static_cast<double>(total_);
  const auto left = std::chrono::seconds(
      rate > 0 ? static_cast<long>(std::min(static_cast<double>(total_ - std::min(done, total_)) / rate, 1e9))
               : 0);
  const std::string figures = fmt::format("{:3.0f}%  {} of {}  {:.0f} samples/s{}  {} left", 100 * part, done,
                                          total_, rate, speed, human_time(left));
  if (!terminal_) {
    fmt::print(stderr, "{}: {}\n", what_, figures);
    return;
  }
  fmt::print(stderr, "\r{} {} {}\x1b[K", what_, bar(part, kBarWidth), figures);
  std::fflush(stderr);
}

}  // namespace headrace::server::verbs
