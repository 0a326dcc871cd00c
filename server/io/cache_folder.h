// A folder of files that the servers of a machine share, and that never holds more bytes than its limit.
//
// Files are admitted until the folder is full and never evicted: each epoch has a new order, so this hits
// more often than LRU. A file appears complete or not at all (it is written under another name, then
// renamed), so a server may be killed at any moment; the first server that finds itself alone removes
// incomplete files. Bytes are reserved before they are written, in a file that all servers lock: a killed
// server may leave too much reserved, but never too little, until the folder is counted again.
//
// Thread safety: any thread may call any member.
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
  /// Creates the folder if it is missing; counts its content if no other server uses it. `most`: in bytes of
  /// whole pages, as on the disk. kEnvironment: it cannot be created or written to; kPermissionDenied: it is
  /// a symbolic link, belongs to another user, or is writable by group or others.
  static Result<std::unique_ptr<CacheFolder>> open(const std::filesystem::path& path, std::uint64_t most);

  /// kUnreadable: the file is damaged or belongs to another user. kRefused: an error hides whether it exists.
  enum class Found : std::uint8_t { kNone, kRead, kUnreadable, kRefused };
  /// Replaces `out` by the file's bytes if the result is kRead.
  Found read(const char* file, std::vector<std::uint8_t>& out) const;
  /// Adds a file, and the missing folders of its name. False: it exists already, there is no room, or the
  /// disk refuses; the log has the disk's first refusal.
  bool add(const char* file, std::span<const std::uint8_t> bytes);
  /// Replaces the bytes of a damaged file, within the room that it had and what else is free.
  bool replace(const char* file, std::span<const std::uint8_t> bytes);
  /// Bytes in use, by all servers. Reads without the lock, which a stopped server may hold, so the value may
  /// be slightly old. 0 if it cannot be read.
  [[nodiscard]] std::uint64_t used() const;
  [[nodiscard]] std::uint64_t budget() const { return most_; }
  /// Whether nothing is added any more: the folder is full, or the disk refused.
  [[nodiscard]] bool closed() const { return full_.load(std::memory_order_relaxed) || write_errors() > 0; }
  [[nodiscard]] std::uint64_t write_errors() const { return refused_.load(std::memory_order_relaxed); }

 private:
  CacheFolder(std::filesystem::path path, std::uint64_t most) : path_(std::move(path)), most_(most) {}
  Result<void> prepare();
  [[nodiscard]] std::uint64_t count_files() const;                  ///< and removes incomplete files
  bool put(const char* file, std::span<const std::uint8_t> bytes);  ///< the bytes must have been reserved
  bool reserve(std::uint64_t bytes);
  void unreserve(std::uint64_t bytes);

  const std::filesystem::path path_;
  const std::uint64_t most_;
  const uid_t user_ = ::geteuid();
  ring::UniqueFd folder_;  ///< O_PATH
  ring::UniqueFd users_;   ///< locked shared by every server that uses the folder
  ring::UniqueFd count_;   ///< holds the bytes in use; locked by the thread that reads or changes it
  std::mutex mutex_;       ///< protects `count_` between threads, as its file lock does between processes
  std::atomic<bool> full_{false};
  std::atomic<std::uint64_t> refused_{0};  ///< files that the disk refused
};

}  // namespace headrace::server::io
