// Reads a file whole, or a range of an open one, and names what went wrong: the file, the disk or the
// content.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::source {

struct ReadPolicy {
  std::uint64_t max_bytes = std::uint64_t{256} << 20;  ///< a larger file is a bad sample
  int attempts = 4;                      ///< for what the system may heal: EIO, ESTALE, EMFILE, ...
  std::chrono::milliseconds backoff{5};  ///< before the second attempt; four times as long before each next
  /// pread(2). Tests put faults here.
  std::function<ssize_t(int fd, void* buffer, std::size_t bytes, off_t offset)> pread;
};

/// A file below an open directory.
struct FilePlace {
  int root_fd;
  const char* path;               ///< relative to it
  const std::string& shown_root;  ///< messages begin with `shown_root`/`path`
};

/// What one attempt came to: `healable` tells whether the error may go away. If so, its message says what to
/// do (`remedy`) once the attempts are over.
struct ReadFault {
  Error error;
  bool healable = false;
  const char* remedy = "look at the disk or mount it lies on";
};
template <class T>
using Attempt = tl::expected<T, ReadFault>;

/// Opens a regular file, which had `expected_bytes` when it was indexed. One attempt.
Attempt<ring::UniqueFd> open_unchanged(const FilePlace& file, std::uint64_t expected_bytes);

/// Fills `out` from `offset` on. `file` is for messages alone. One attempt.
Attempt<void> read_range(int fd, std::uint64_t offset, std::span<std::uint8_t> out, const ReadPolicy& policy,
                         const FilePlace& file);

/// Attempts, as often and as far apart as the policy says, until it succeeds or its error cannot heal.
/// Give a lambda by std::cref: so nothing is allocated for it.
Result<void> with_retries(const ReadPolicy& policy, const std::function<Attempt<void>()>& attempt);

/// Reads a file whole into `out`; `expected_bytes`: what it had when it was indexed, where that is known.
/// Errors as Source::read() has them.
Result<void> read_file(const FilePlace& file, std::optional<std::uint64_t> expected_bytes,
                       const ReadPolicy& policy, std::vector<std::uint8_t>& out);

}  // namespace headrace::server::source
