// Memory-mapped files, and what happens when such a file is truncated or its disk fails: the kernel raises
// SIGBUS in the thread that reads a lost page. A handler then maps zeros over the rest of the mapping and
// notes the fault. The thread reads zeros, continues, and checks fault() before it publishes what it made.
// Bytes lost within the file's last page read as zeros without a signal: so fault() also checks the file's
// size.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "headrace/error.h"

namespace headrace::server::mapped {

/// Watches a mapping while it lives. A fault is lasting: the mapping's content cannot be trusted any more,
/// not even where another thread found zeros without a fault of its own.
///
/// Thread safety: const members by any thread. REQUIRES: the mapping outlives the object, and nobody reads it
/// afterwards.
class WatchedMap {
 public:
  /// `fd`: the mapped file, which stays open while the object lives. A duplicate could fail, and the check of
  /// the size with it. `path`: for messages. The first object installs the handler;
  /// signals that belong to no watched mapping go to the handler that was there before.
  WatchedMap(std::span<const std::uint8_t> bytes, int fd, std::string path);
  ~WatchedMap();
  WatchedMap(const WatchedMap&) = delete;
  WatchedMap& operator=(const WatchedMap&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  /// kDatasetInvalid, with the file and the first lost byte. Costs an fstat(2): once per batch, not per
  /// sample.
  [[nodiscard]] std::optional<Error> fault() const;

 private:
  struct Slot;
  friend struct Slots;

  const std::span<const std::uint8_t> bytes_;
  const int fd_;
  const std::uint64_t file_bytes_;
  const std::string path_;
  Slot& slot_;
};

/// While it lives, this thread reads zeros from a lost page of a mapping that no WatchedMap knows. For a
/// library that maps a file and reads it before it can be said where the map lies.
class UnwatchedFaults {
 public:
  UnwatchedFaults();
  ~UnwatchedFaults();
  UnwatchedFaults(const UnwatchedFaults&) = delete;
  UnwatchedFaults& operator=(const UnwatchedFaults&) = delete;

  [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }

 private:
  friend struct Slots;

  std::atomic<bool> any_{false};  ///< written by the signal handler
};

/// The whole mapping of this process that contains the address; empty if there is none.
[[nodiscard]] std::span<const std::uint8_t> mapping_around(const void* inside);

}  // namespace headrace::server::mapped
