// The members of one tar file in order, and where in the file their bytes lie.
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
  std::string name;          ///< whole, also where the header has no room for it (GNU, pax)
  bool file = false;         ///< a regular file; else a folder, link, device
  std::uint64_t offset = 0;  ///< of its first byte in the tar file
  std::uint64_t bytes = 0;
};

/// Fills a part of `out`, at least a byte, with what a file has from `offset` on; gives how much, 0 at its
/// end.
using ReadAt = std::function<Result<std::size_t>(std::uint64_t offset, std::span<std::uint8_t> out)>;

/// Reads headers only; what lies between them is skipped. Not thread safe.
class TarReader {
 public:
  /// Of a file of `file_bytes`; `shown` begins each message.
  static Result<TarReader> open(ReadAt read, std::uint64_t file_bytes, const std::string& shown);
  /// `fd` must live as long as this and stay `file_bytes` long.
  static Result<TarReader> open(int fd, std::uint64_t file_bytes, const std::string& shown);
  TarReader(TarReader&&) noexcept;
  TarReader& operator=(TarReader&&) noexcept;
  ~TarReader();

  /// The next member; false at the end. kDatasetInvalid, with the byte where it was found: compressed, no
  /// tar, cut (also if only the blocks of zeros at its end are missing), more data behind its end, a sparse
  /// file. Errors of `read`; of a file, kTransientIo for the system's.
  Result<bool> next(TarMember& member);

  /// The content of the member that next() gave, once; the caller has looked at its size.
  Result<std::string> content();

 private:
  struct State;
  explicit TarReader(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace headrace::server::source
