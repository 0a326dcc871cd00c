#include "server/log/sink.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/details/log_msg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "clientlib/ring/unique_fd.h"

namespace headrace::server::log {
namespace {

std::atomic<std::uint64_t> dropped{0};

constexpr std::string_view kCut = " ...";
const std::string kClearLine = "\r\033[K";

std::string_view color_of(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return "\033[31m";
  return level == spdlog::level::warn ? "\033[33m" : "\033[32m";
}

/// Shortens a line to what a pipe accepts whole, without splitting a UTF-8 character.
std::string shortened(const std::string& line) {
  constexpr std::string_view kEnd = " ...\n";
  std::size_t most = PIPE_BUF - kEnd.size();
  while (most > 0 && (static_cast<unsigned char>(line[most]) & 0xC0) == 0x80) --most;
  return line.substr(0, most).append(kEnd);
}

}  // namespace

std::uint64_t dropped_lines() {
  return dropped.load(std::memory_order_relaxed);
}

namespace {

std::string escape(std::string_view text, std::string_view line_feed) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xC2 && next >= 0x80 && next <= 0x9F) {  // U+0080 to U+009F, the C1 controls
      fmt::format_to(std::back_inserter(out), "\\x{:02X}", next);
      ++i;
    } else if (c == '\n') {
      out += line_feed;
    } else if (byte < 0x20 || byte == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  return escape(text, "\n    ");
}

std::string escaped_line(std::string_view text) {
  return escape(text, "\\x0A");
}

Sink::Sink(int fd) : fd_(fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return;
  if (S_ISREG(status.st_mode)) {
    kind_ = Kind::kDirect;
  } else if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
  } else {
    terminal_ = ::isatty(fd) == 1;
    const char* const kind = std::getenv("TERM");
    dumb_ = kind && std::string_view(kind) == "dumb";
    colored_ = terminal_ && !dumb_ && std::getenv("NO_COLOR") == nullptr;
    const ring::UniqueFd own(
        ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (own && ::dup2(own.get(), fd) == fd) {
      kind_ = Kind::kDirect;
    } else if (terminal_) {
      // Another user's terminal, as after sudo. poll(2) is not enough: it reports room for a byte, not for a
      // line. O_NONBLOCK affects every process that shares the terminal, so ~Sink() restores the flags.
      shared_flags_ = ::fcntl(fd, F_GETFL);
      if (::fcntl(fd, F_SETFL, shared_flags_ | O_NONBLOCK) == 0) kind_ = Kind::kDirect;
    }  // Another user's pipe is polled: it takes a record whole or not at all.
  }
}

Sink::~Sink() {
  restore_terminal();
}

void Sink::restore_terminal() const {
  if (shared_flags_ >= 0) ::fcntl(fd_, F_SETFL, shared_flags_);
}

void Sink::sink_it_(const spdlog::details::log_msg& record) {
  if (dropped_ > 0) {
    const std::string text = fmt::format(
        "{} log lines were dropped because the log's reader was slow or gone; read the log, or redirect it "
        "to a "
        "file (metric: headrace_log_lines_dropped_total)",
        dropped_);
    if (write({record.time, {}, {}, spdlog::level::warn, text})) dropped_ = 0;
  }
  if (dropped_ == 0 && write(record)) return;
  ++dropped_;
  dropped.fetch_add(1, std::memory_order_relaxed);
}

void Sink::set_format(Format format) {
  const std::scoped_lock lock(mutex_);
  format_ = format;
}

bool Sink::in_foreground() const {
  if (!is_terminal()) return false;
  const pid_t group = ::tcgetpgrp(fd_);
  return group < 0 || group == ::getpgrp();  // < 0: not the terminal that controls this process
}

void Sink::set_live_line(std::string line) {
  const std::scoped_lock lock(mutex_);
  if (!in_foreground() || format_ == Format::kJson) line.clear();
  if (line == live_line_) return;
  live_line_ = std::move(line);
  if (!rest_.empty() && !write_some(rest_)) return;
  rest_ = kClearLine + live_line_;
  write_some(rest_);
}

std::string Sink::as_text(const spdlog::details::log_msg& record) {
  const std::string payload = escaped({record.payload.data(), record.payload.size()});
  spdlog::details::log_msg clean = record;
  clean.payload = payload;
  spdlog::memory_buf_t line;
  formatter_->format(clean, line);
  std::string text(line.data(), line.size());
  if (colored_ && clean.color_range_end > clean.color_range_start) {
    text.insert(clean.color_range_end, "\033[m");
    text.insert(clean.color_range_start, color_of(clean.level));
  }
  return text.size() > PIPE_BUF ? shortened(text) : text;
}

std::string Sink::as_json(const spdlog::details::log_msg& record) {
  using Json = nlohmann::ordered_json;
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(record.time.time_since_epoch());
  Json object{{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                                   fmt::gmtime(std::chrono::system_clock::to_time_t(record.time)),
                                   since.count() % 1000)},
              {"level", std::string_view(spdlog::level::to_string_view(record.level).data())},
              {"message", std::string(record.payload.data(), record.payload.size())}};
  const auto text = [&] { return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; };
  std::string line = text();
  if (line.size() <= PIPE_BUF) return line;
  const std::string whole = object["message"].get<std::string>();
  std::size_t kept = whole.size();
  const std::size_t growth = line.size() / whole.size() + 1;  // escapes make a line longer than its message
  while (line.size() > PIPE_BUF) {
    kept -= std::min(kept, (line.size() - PIPE_BUF + kCut.size()) / growth + 1);
    while (kept > 0 && (static_cast<unsigned char>(whole[kept]) & 0xC0) == 0x80) --kept;
    object["message"] = whole.substr(0, kept).append(kCut);
    line = text();
  }
  return line;
}

bool Sink::write(const spdlog::details::log_msg& record) {
  std::string text = format_ == Format::kJson ? as_json(record) : as_text(record);
  if (!live_line_.empty() && !in_foreground()) live_line_.clear();  // another program has the terminal now
  if (!live_line_.empty()) text = kClearLine + text + live_line_;
  if (!rest_.empty() && !write_some(rest_)) return false;
  rest_ = std::move(text);
  const std::size_t whole = rest_.size();
  if (write_some(rest_) || rest_.size() < whole) return true;  // what was begun is ended by the next line
  rest_.clear();
  return false;
}

bool Sink::write_some(std::string& text) const {
  while (!text.empty()) {
    pollfd room{fd_, POLLOUT, 0};
    if (kind_ == Kind::kPolled && ::poll(&room, 1, 0) != 1) return false;
    const ssize_t done = kind_ == Kind::kSocket
                             ? ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                             : ::write(fd_, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    text.erase(0, static_cast<std::size_t>(done));
  }
  return true;
}

}  // namespace headrace::server::log
