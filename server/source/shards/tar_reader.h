// The members of a tar file in order, and the offsets of their bytes in the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

struct TarMember {
  std::string name;          ///< complete, even if the header has no room for it (GNU, pax)
  bool file = false;         ///< a regular file; else a folder, link, device
  std::uint64_t offset = 0;  ///< of its first byte in the tar file
  std::uint64_t bytes = 0;
};

/// Fills a part of `out`, at least one byte, with the file's bytes from `offset` on; returns their number, 0
/// at the end of the file.
using ReadAt = std::function<Result<std::size_t>(std::uint64_t offset, std::span<std::uint8_t> out)>;

/// Reads only headers and skips what is between them. Not thread safe.
class TarReader {
 public:
  /// For a file of `file_bytes`; `shown` begins each message.
  static Result<TarReader> open(ReadAt read, std::uint64_t file_bytes, const std::string& shown);
  /// `fd` must stay open, and its file `file_bytes` long, while this exists.
  static Result<TarReader> open(int fd, std::uint64_t file_bytes, const std::string& shown);
  TarReader(TarReader&&) noexcept;
  TarReader& operator=(TarReader&&) noexcept;
  ~TarReader();

  /// The next member; false at the end. kDatasetInvalid, with the byte offset: compressed, not tar, truncated
  /// (even if only the final blocks of zeros are missing), data after the end, a sparse file. Also errors of
  /// `read`; for a file, kTransientIo for system errors.
  Result<bool> next(TarMember& member);

  /// The content of the member that next() returned; call it at most once, after checking the member's size.
  /// Also kDatasetInvalid: it has another size.
  Result<std::string> content();

 private:
  struct State;
  explicit TarReader(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace headrace::server::source
