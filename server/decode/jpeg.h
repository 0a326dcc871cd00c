// JPEG rows by libjpeg-turbo, with PIL's settings: accurate integer DCT, fancy upsampling.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "server/decode/decoder.h"

namespace headrace::server::decode {

/// Columns decoded beyond the region on both sides, so that fancy upsampling has the same neighbors at the
/// region's edges as in a full decode. It uses one chroma sample on each side, which is at most two columns
/// away; libjpeg also widens the left edge to a whole MCU. With 0, regions differ; with 2 none does, for any
/// sampling (decode_test).
inline constexpr std::int32_t kJpegMargin = 2;

/// See Decoder for the order of calls.
class JpegReader {
 public:
  JpegReader();
  ~JpegReader();
  JpegReader(JpegReader&&) noexcept;
  JpegReader& operator=(JpegReader&&) noexcept;

  Decoded<ImageSize> open(std::span<const std::uint8_t> encoded, std::uint64_t max_pixels);
  /// Bytes that begin() and next() allocate for the whole image or the kept region, without small buffers.
  [[nodiscard]] std::size_t memory(Rect region, bool keep) const;
  /// Frees it.
  void free_large();
  Decoded<void> begin(Rect region, bool keep);
  Decoded<Rows> next();
  [[nodiscard]] long warnings() const;
  [[nodiscard]] std::string_view warning() const;  ///< the first warning

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace headrace::server::decode
