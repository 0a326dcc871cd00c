// Chooses the rows of a file column whose sizes are read and kept: all rows of a small set, some of a large
// one. Reading millions of sizes takes longer than listing the folders, on a network mount many times longer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace headrace::server::source {

/// Evenly spread over the rows. Depends only on their number, because fingerprints include the sizes.
class SizeSample {
 public:
  static constexpr std::uint64_t kMost = 65'536;

  /// `rows`: below 2^47.
  explicit SizeSample(std::uint64_t rows) : rows_(rows), size_(std::min(rows, kMost)) {}

  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// The row at `index` of the sample; increases with it.
  [[nodiscard]] std::uint64_t row(std::uint64_t index) const { return index * rows_ / size_; }
  /// The index of `row` in the sample; none: it is not in the sample.
  [[nodiscard]] std::optional<std::uint64_t> index_of(std::uint64_t row) const {
    const std::uint64_t nearest = (row * size_ + rows_ - 1) / rows_;
    return nearest < size_ && this->row(nearest) == row ? std::optional(nearest) : std::nullopt;
  }

 private:
  std::uint64_t rows_, size_;
};

}  // namespace headrace::server::source
