// Reads a whole file, or a range of an open one, and says whether the file, the disk or the content is at
// fault.
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
  int attempts = 4;                                    ///< for errors that may pass: EIO, ESTALE, EMFILE, ...
  std::chrono::milliseconds backoff{5};  ///< before the second attempt; each later one is 4 times as long
  /// pread(2). Tests inject faults here.
  std::function<ssize_t(int fd, void* buffer, std::size_t bytes, off_t offset)> pread;
};

/// A file below an open directory.
struct FileRef {
  int root_fd;
  const char* path;               ///< relative to it
  const std::string& shown_root;  ///< messages begin with `shown_root`/`path`
};

/// The failure of one attempt. `retryable`: the error may pass, so the attempt is repeated; after the last
/// one, `remedy` is added to the message.
struct ReadFault {
  Error error;
  bool retryable = false;
  const char* remedy = "check its disk or mount";
};
template <class T>
using Attempt = tl::expected<T, ReadFault>;

/// Opens a regular file that had `expected_bytes` when it was indexed. One attempt.
Attempt<ring::UniqueFd> open_unchanged(const FileRef& file, std::uint64_t expected_bytes);

/// Fills `out` from `offset` on. `file` is used only for messages. One attempt.
Attempt<void> read_range(int fd, std::uint64_t offset, std::span<std::uint8_t> out, const ReadPolicy& policy,
                         const FileRef& file);

/// Retries as the policy says, until an attempt succeeds or fails with an error that cannot pass. Pass a
/// lambda by std::cref, so that nothing is allocated for it.
Result<void> with_retries(const ReadPolicy& policy, const std::function<Attempt<void>()>& attempt);

/// Reads a whole file into `out`; `expected_bytes`: its size when it was indexed, if known. Errors: as
/// Source::read().
Result<void> read_file(const FileRef& file, std::optional<std::uint64_t> expected_bytes,
                       const ReadPolicy& policy, std::vector<std::uint8_t>& out);

}  // namespace headrace::server::source
