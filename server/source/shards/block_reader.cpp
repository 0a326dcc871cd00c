#include "server/source/shards/block_reader.h"

#include <algorithm>

namespace headrace::server::source {

Result<std::size_t> BlockReader::read(std::uint64_t offset, std::span<std::uint8_t> out) {
  if (offset >= file_bytes_) return 0;
  std::uint64_t end = begin_ + block_.size();
  if (offset < begin_ || offset >= end) {
    const bool near = !block_.empty() && offset >= end && offset - end <= kNear;
    size_ = near ? std::min(2 * size_, kLargest) : kSmallest;
    block_.resize(std::min(size_, file_bytes_ - offset));
    begin_ = offset;
    if (auto filled = fill_(offset, block_); !filled) {
      block_.clear();
      return fail(std::move(filled.error()));
    }
    end = begin_ + block_.size();
  }
  const std::size_t count = std::min<std::uint64_t>(out.size(), end - offset);
  std::copy_n(block_.begin() + static_cast<std::ptrdiff_t>(offset - begin_), count, out.begin());
  return count;
}

}  // namespace headrace::server::source
