// Reads pixels that need no decoding (IDX, CIFAR, arrays, decoded records) like a decoder: as rows of RGB.
#pragma once

#include <span>
#include <vector>

#include "server/decode/decoder.h"

namespace headrace::server::decode {

/// Gray is returned as three equal channels. RGB rows are returned in place, except those so near to the end
/// of the bytes that a reader would read beyond it.
class RawReader {
 public:
  /// kTruncated: fewer bytes than pixels; kUnsupported: an invalid shape; kTooLarge.
  static Decoded<void> check(std::span<const std::uint8_t> bytes, const PixelShape& shape,
                             std::uint64_t max_pixels);
  /// Returns check()'s error; call begin() next.
  Decoded<ImageSize> open(std::span<const std::uint8_t> bytes, const PixelShape& shape,
                          std::uint64_t max_pixels);
  /// Bytes that begin() and next() allocate for the whole image or the kept region, without small buffers.
  [[nodiscard]] std::size_t memory(Rect region, bool keep) const;
  /// Frees it.
  void free_large() { rows_ = {}; }
  Decoded<void> begin(Rect region, bool keep);
  Decoded<Rows> next();

 private:
  void copy_row(std::int32_t y, std::uint8_t* rgb) const;
  /// The region's part of row `y` in place; null if rows up to `last` must be copied.
  [[nodiscard]] const std::uint8_t* in_place(std::int32_t y, std::int32_t last) const;

  std::span<const std::uint8_t> bytes_;
  PixelShape shape_;
  Rect region_;
  bool keep_ = false;
  std::int32_t done_ = 0;
  std::vector<std::uint8_t> rows_;
};

}  // namespace headrace::server::decode
