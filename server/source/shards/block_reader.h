// Reads what lies far away, in blocks, for who reads on and on and skips now and then: a tar file's headers.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "server/source/shards/tar_reader.h"

namespace headrace::server::source {

/// A block is kept, the last one. The next one begins where it is asked for. Where that is near the end of
/// the last one, more will be wanted from there on, and blocks grow, up to kLargest: small bodies come along
/// with their headers, for a request costs more than they do. Where it is far, only a small block is read:
/// large bodies are not. Not thread safe.
class BlockReader {
 public:
  static constexpr std::uint64_t kSmallest = std::uint64_t{16} << 10;
  static constexpr std::uint64_t kLargest = std::uint64_t{4} << 20;
  /// What a connection of 100 Mbit/s brings while a request is on its way for 20 ms.
  static constexpr std::uint64_t kNear = std::uint64_t{256} << 10;

  /// Fills all of `out` from `offset` on.
  using Fill = std::function<Result<void>(std::uint64_t offset, std::span<std::uint8_t> out)>;
  BlockReader(std::uint64_t file_bytes, Fill fill) : file_bytes_(file_bytes), fill_(std::move(fill)) {}

  /// As ReadAt.
  Result<std::size_t> read(std::uint64_t offset, std::span<std::uint8_t> out);

 private:
  const std::uint64_t file_bytes_;
  const Fill fill_;
  std::uint64_t begin_ = 0, size_ = kSmallest;
  std::vector<std::uint8_t> block_;
};

}  // namespace headrace::server::source
