// The server's log: lines go to a descriptor, usually standard error, and never wait for its reader.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "server/log/log.h"

namespace headrace::server::log {

/// A line that finds no room (a full pipe, a stopped terminal, a closed reader) is dropped and counted; the
/// next line that is written says how many were. The kernel's buffer is the queue: no thread can hang at
/// exit. A record is one write of at most 4,096 bytes, which a pipe never splits; a longer one is cut.
/// Control bytes are escaped, and lines after the first are indented: no file name can forge a record.
class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// Reopens a pipe or terminal with O_NONBLOCK and dup2()s it onto `fd`: processes that share the old one
  /// are unaffected, and nothing that this process prints there blocks. Another user's terminal cannot be
  /// reopened: its shared flags get O_NONBLOCK while the sink lives.
  explicit Sink(int fd);
  ~Sink() override;
  /// How further lines are written. A JSON line is an object of at most 4,096 bytes: longer messages are cut.
  void set_format(Format format);
  /// Keeps this line below the last one that was logged, on a terminal, while this process is in its
  /// foreground; empty: none.
  void set_live_line(std::string line);
  [[nodiscard]] bool is_terminal() const { return terminal_ && !dumb_; }
  /// Does what the destructor does, for a process that ends without it, as by std::_Exit.
  void restore_terminal() const;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

 protected:
  void sink_it_(const spdlog::details::log_msg& record) override;
  void flush_() override {}

 private:
  enum class Kind : std::uint8_t { kDirect, kSocket, kPolled };

  [[nodiscard]] bool in_foreground() const;
  bool write(const spdlog::details::log_msg& record);
  std::string as_text(const spdlog::details::log_msg& record);
  [[nodiscard]] static std::string as_json(const spdlog::details::log_msg& record);
  /// Writes as much as there is room for, and removes it from `text`. False: some of it remains.
  bool write_some(std::string& text) const;

  const int fd_;
  Kind kind_ = Kind::kPolled;
  bool terminal_ = false, dumb_ = false, colored_ = false;
  Format format_ = Format::kText;
  std::string live_line_;
  int shared_flags_ = -1;      ///< of another user's terminal, as they were
  std::string rest_;           ///< of a line that a socket or terminal accepted only in part
  std::uint64_t dropped_ = 0;  ///< lines dropped since the last one that was written
};

/// Of all sinks of this process.
[[nodiscard]] std::uint64_t dropped_lines();

/// `text` with control bytes as \xHH and every line after the first indented by four spaces.
[[nodiscard]] std::string escaped(std::string_view text);
/// `text` with control bytes and line feeds as \xHH.
[[nodiscard]] std::string escaped_line(std::string_view text);

}  // namespace headrace::server::log
