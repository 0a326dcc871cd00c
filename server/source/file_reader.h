// Reads one file whole, and names what went wrong: the file, the disk or the content.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

struct ReadPolicy {
  std::uint64_t max_bytes = std::uint64_t{256} << 20;  ///< a larger file is a bad sample
  int attempts = 4;                      ///< for what the system may heal: EIO, ESTALE, EMFILE, ...
  std::chrono::milliseconds backoff{5};  ///< before the second attempt; four times as long before each next
  /// pread(2). Tests put faults here.
  std::function<ssize_t(int fd, void* buffer, std::size_t bytes, off_t offset)> pread;
};

/// Reads `path` (relative to the directory `root_fd`), which had `expected_bytes` when it was indexed, into
/// `out`. Errors as Source::read() has them; messages begin with `shown_root`/`path`.
Result<void> read_file(int root_fd, const char* path, std::uint64_t expected_bytes, const ReadPolicy& policy,
                       const std::string& shown_root, std::vector<std::uint8_t>& out);

}  // namespace headrace::server::source
