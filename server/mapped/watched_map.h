// Memory-mapped files whose truncation or disk failure must not end the process: the kernel raises SIGBUS in
// the thread that reads a lost page. A handler then maps other memory there and records the fault. The thread
// reads that memory, continues, and checks fault() before it publishes what it made. Bytes lost
// within the file's last page read as zeros without a signal, so fault() also checks the file's size.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "headrace/error.h"

namespace headrace::server::mapped {

/// Watches a mapping while it exists. A fault is permanent: no content of the mapping can be trusted any
/// more, even if another thread read it without a fault of its own.
///
/// Thread safety: any thread may call const members. REQUIRES: the mapping outlives the object, and no thread
/// reads it afterwards.
class WatchedMap {
 public:
  /// `fd`: the mapped file, which must stay open while the object exists (duplicating it could fail, and the
  /// check of the size with it). `path`: for messages. The first object installs the handler; signals outside
  /// watched mappings are passed to the previous handler.
  WatchedMap(std::span<const std::uint8_t> bytes, int fd, std::string path);
  ~WatchedMap();
  WatchedMap(const WatchedMap&) = delete;
  WatchedMap& operator=(const WatchedMap&) = delete;

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  /// kDatasetInvalid, with the file and the first lost byte. Costs an fstat(2): call it once per batch, not
  /// per sample.
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

/// While it exists, this thread survives lost pages of a mapping without a WatchedMap. For a library that
/// maps and reads a file before the address of its map is known.
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
