// A folder of files that several servers of a machine share, and that never holds more bytes than it may.
//
// What is there is admitted until it is full and never evicted: epochs in ever other orders hit that more
// often than what was used last. A file appears whole or not at all (written aside, then given its name), so
// a server may be killed at any moment; what it leaves half written is swept away by the first server that
// finds itself alone. Bytes are reserved before they are written, in a file that all of them lock: a killed
// server may leave too much reserved, never too little, until the folder is counted anew.
//
// Thread safety: all members, any thread.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::io {

class CacheFolder {
 public:
  /// Makes the folder if it is not there; counts what is in it if no other server uses it. `most`: bytes, of
  /// whole pages, as disks have them. kEnvironment: it cannot be made, or not be written to;
  /// kPermissionDenied: it is a symbolic link, another user's, or writable by group or others.
  static Result<std::unique_ptr<CacheFolder>> open(const std::filesystem::path& path, std::uint64_t most);

  /// kUnreadable: there is one, and it is bad, or another user's. kRefused: whether there is one cannot be
  /// told now.
  enum class Found : std::uint8_t { kNone, kRead, kUnreadable, kRefused };
  /// Replaces `out` by a file's bytes, if it is read.
  Found read(const char* file, std::vector<std::uint8_t>& out) const;
  /// Adds a file, and the folders of its name that are missing. False: it is there already, there is no room,
  /// or the disk refuses, of which the first reason is in the log.
  bool add(const char* file, std::span<const std::uint8_t> bytes);
  /// Puts these bytes in the place of a file that turned out to be bad, within the room that it had and what
  /// else there is.
  bool replace(const char* file, std::span<const std::uint8_t> bytes);
  /// Bytes in use, by all servers. Without a lock, which a server that was stopped may hold: perhaps those of
  /// a moment ago. 0 if they cannot be read.
  [[nodiscard]] std::uint64_t used() const;
  [[nodiscard]] std::uint64_t budget() const { return most_; }
  /// Nothing is added any more: there is no room, or the disk refused.
  [[nodiscard]] bool closed() const { return full_.load(std::memory_order_relaxed) || write_errors() > 0; }
  [[nodiscard]] std::uint64_t write_errors() const { return refused_.load(std::memory_order_relaxed); }

 private:
  CacheFolder(std::filesystem::path path, std::uint64_t most) : path_(std::move(path)), most_(most) {}
  Result<void> prepare();
  [[nodiscard]] std::uint64_t count_files() const;                  ///< and sweeps
  bool put(const char* file, std::span<const std::uint8_t> bytes);  ///< of bytes that are reserved
  bool reserve(std::uint64_t bytes);
  void give_back(std::uint64_t bytes);

  const std::filesystem::path path_;
  const std::uint64_t most_;
  const uid_t user_ = ::geteuid();
  ring::UniqueFd folder_;  ///< O_PATH
  ring::UniqueFd users_;   ///< locked shared by every server that uses the folder
  ring::UniqueFd count_;   ///< holds the bytes in use; locked by who reads or changes it
  std::mutex mutex_;       ///< for threads what the lock of `count_` is for processes
  std::atomic<bool> full_{false};
  std::atomic<std::uint64_t> refused_{0};  ///< files, by the disk
};

}  // namespace headrace::server::io
