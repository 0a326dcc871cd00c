#include "server/log/sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/details/log_msg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <iterator>
#include <string>

namespace headrace::server::log {
namespace {

std::atomic<std::uint64_t> dropped{0};

std::string_view color_of(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return "\033[31m";
  return level == spdlog::level::warn ? "\033[33m" : "\033[32m";
}

}  // namespace

std::uint64_t dropped_lines() {
  return dropped.load(std::memory_order_relaxed);
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\n    ";
    } else if (byte < 0x20 || byte == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

Sink::Sink(int fd) : fd_(fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return;
  if (S_ISREG(status.st_mode)) {
    kind_ = Kind::kFile;
  } else if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
  } else {
    colored_ = ::isatty(fd) == 1;
    own_.reset(
        ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (own_) kind_ = Kind::kUnblocked;  // another user's pipe cannot be opened again: it is polled
  }
}

void Sink::sink_it_(const spdlog::details::log_msg& record) {
  if (unsaid_ > 0) {
    const std::string text = fmt::format(
        "{} log lines were dropped: nobody read the log (headrace_log_lines_dropped_total)", unsaid_);
    if (write({record.time, {}, {}, spdlog::level::warn, text})) unsaid_ = 0;
  }
  if (unsaid_ == 0 && write(record)) return;
  ++unsaid_;
  dropped.fetch_add(1, std::memory_order_relaxed);
}

bool Sink::write(const spdlog::details::log_msg& record) {
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
  if (text.size() > PIPE_BUF) text.replace(PIPE_BUF - 5, std::string::npos, " ...\n");
  const int fd = own_ ? own_.get() : fd_;
  ssize_t done = -1;
  do {
    if (kind_ == Kind::kSocket) {
      done = ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      continue;
    }
    pollfd room{fd, POLLOUT, 0};
    if (kind_ == Kind::kPolled && ::poll(&room, 1, 0) != 1) return false;
    done = ::write(fd, text.data(), text.size());
  } while (done < 0 && errno == EINTR);
  return done >= 0;
}

}  // namespace headrace::server::log
