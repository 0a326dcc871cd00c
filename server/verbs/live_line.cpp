#include "server/verbs/live_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <vector>

#include "clientlib/ring/futex.h"
#include "server/session/stream_snapshot.h"

namespace headrace::server::verbs {
namespace {

/// Figures of all streams at one time.
struct Seen {
  std::uint64_t ns = 0, busy_ns = 0;
  std::vector<std::uint64_t> granted;
};

std::string line_of(const exec::Engine& engine, const Seen& before, Seen& now) {
  now = {.ns = ring::monotonic_ns(), .busy_ns = engine.busy_ns(), .granted = {}};
  const double seconds = std::max(1e-3, static_cast<double>(now.ns - before.ns) * 1e-9);
  std::string line;
  for (std::size_t i = 0; i < engine.stream_count(); ++i) {
    const session::StreamSnapshot stream = session::snapshot_of(engine, i, {});
    now.granted.push_back(stream.figures.granted);
    if (stream.clients.empty() && engine.stream_count() > 1) continue;
    const double granted = static_cast<double>(
        now.granted[i] - (i < before.granted.size() ? before.granted[i] : now.granted[i]));
    line +=
        fmt::format("{}: {}epoch {} {:.0f}%, {:.0f} samples/s, {} trainer{} | ", stream.info.name,
                    stream.failed ? "FAILED, " : "", stream.foremost.epoch, 100 * session::progress(stream),
                    granted / seconds, stream.clients.size(), stream.clients.size() == 1 ? "" : "s");
  }
  const double busy = static_cast<double>(now.busy_ns - before.busy_ns) * 1e-9 / seconds / engine.threads();
  return line + fmt::format("workers {:.0f}% busy", 100 * std::clamp(busy, 0.0, 1.0));
}

std::size_t columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void update(const std::stop_token& ended, const exec::Engine& engine, log::Sink& sink) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  Seen before{.ns = ring::monotonic_ns(), .busy_ns = engine.busy_ns(), .granted = {}}, now;
  while (!wake.wait_for(lock, ended, std::chrono::seconds(1), [] { return false; }) &&
         !ended.stop_requested()) {
    const std::string line = line_of(engine, before, now);
    sink.set_live_line(line.substr(0, columns() - 1));  // a full line would be wrapped
    before = std::move(now);
  }
}

}  // namespace

LiveLine::LiveLine(const exec::Engine& engine, log::Sink& sink) : sink_(sink) {
  if (!sink.is_terminal()) return;
  try {
    thread_ = std::jthread([&engine, &sink](const std::stop_token& ended) {
      try {
        update(ended, engine, sink);
      } catch (const std::exception&) {  // no memory: the line is not worth more
      }
    });
  } catch (const std::system_error&) {  // no further thread can be created
  }
}

LiveLine::~LiveLine() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  sink_.set_live_line("");
}

}  // namespace headrace::server::verbs
