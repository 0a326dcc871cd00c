// Reads a remote file in blocks, for readers that go forward and sometimes skip: a tar file's headers.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "server/source/shards/tar_reader.h"

namespace headrace::server::source {

/// Keeps only the last block. The next block begins at the requested offset. If that is near the end of the
/// last block, the reader will probably continue from there, and blocks grow up to kLargest: small bodies are
/// read along with their headers, because a request costs more than they do. If it is far, only a small block
/// is read, which skips large bodies. Not thread safe.
class BlockReader {
 public:
  static constexpr std::uint64_t kSmallest = std::uint64_t{16} << 10;
  static constexpr std::uint64_t kLargest = std::uint64_t{4} << 20;
  /// What a connection of 100 Mbit/s transfers during a round trip of 20 ms.
  static constexpr std::uint64_t kNear = std::uint64_t{256} << 10;

  /// Fills all of `out` from `offset` on.
  using Fill = std::function<Result<void>(std::uint64_t offset, std::span<std::uint8_t> out)>;
  BlockReader(std::uint64_t file_bytes, Fill fill) : file_bytes_(file_bytes), fill_(std::move(fill)) {}

  /// See ReadAt.
  Result<std::size_t> read(std::uint64_t offset, std::span<std::uint8_t> out);

 private:
  const std::uint64_t file_bytes_;
  const Fill fill_;
  std::uint64_t begin_ = 0, size_ = kSmallest;
  std::vector<std::uint8_t> block_;
};

}  // namespace headrace::server::source
