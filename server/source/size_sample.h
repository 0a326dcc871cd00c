// Which rows of a column of files have their sizes asked for and kept: all of a small set, some of a large
// one. To ask for each of millions would take longer than to list them, on a network mount many times so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace headrace::server::source {

/// Evenly spread over the rows, and a function of their number alone: fingerprints are of it.
class SizeSample {
 public:
  static constexpr std::uint64_t kMost = 65'536;

  /// `rows`: below 2^47.
  explicit SizeSample(std::uint64_t rows) : rows_(rows), size_(std::min(rows, kMost)) {}

  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// The one at `place`; rises with it.
  [[nodiscard]] std::uint64_t row(std::uint64_t place) const { return place * rows_ / size_; }
  /// Where `row` is in the sample; none: it is not in it.
  [[nodiscard]] std::optional<std::uint64_t> place(std::uint64_t row) const {
    const std::uint64_t nearest = (row * size_ + rows_ - 1) / rows_;
    return nearest < size_ && this->row(nearest) == row ? std::optional(nearest) : std::nullopt;
  }

 private:
  std::uint64_t rows_, size_;
};

}  // namespace headrace::server::source
