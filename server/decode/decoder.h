// Image files, or bare pixels, to rows of 8-bit RGB: the pixels of PIL's Image.open(...).convert("RGB"), a
// region of interest only.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "server/decode/bad.h"

namespace headrace::server::decode {

struct Rect {
  std::int32_t left = 0, top = 0, width = 0, height = 0;
  friend bool operator==(const Rect&, const Rect&) = default;
};

struct ImageSize {
  std::int32_t width = 0, height = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// 8-bit pixels without a file around them: gray, or red, green, blue.
struct PixelShape {
  std::int32_t width = 0, height = 0;
  std::int32_t channels = 3;  ///< 1 or 3
  bool planar = false;        ///< one channel after the other

  friend bool operator==(const PixelShape&, const PixelShape&) = default;
};

/// What a decoder opens: a JPEG or PNG file, or pixels of that shape.
struct ImageData {
  std::span<const std::uint8_t> bytes;
  PixelShape pixels;     ///< width 0: a file
  bool indices = false;  ///< palette indices and gray values as they are stored, in all three channels

  template <std::convertible_to<std::span<const std::uint8_t>> Bytes>
  // NOLINTNEXTLINE(google-explicit-constructor): a file's bytes are image data, wherever they lie
  ImageData(const Bytes& file) : bytes(file) {}
  ImageData(std::span<const std::uint8_t> all, const PixelShape& shape) : bytes(all), pixels(shape) {}
};

/// Rows come in blocks of at most this many: what one pass of the resize takes, and one MCU row of a 4:2:0
/// JPEG.
inline constexpr std::int32_t kBlockRows = 16;
/// Bytes that may be read (not written) past the last pixel of a row.
inline constexpr std::size_t kRowSlack = 64;
/// A progressive file may make its reader work once per scan over all coefficients; more scans are refused.
inline constexpr int kMaxScans = 500;

/// Longest side, JPEG's own limit. PNG could say 2^31 - 1, and a block of such rows would not fit into
/// memory.
inline constexpr std::uint32_t kMaxSide = 65'535;

/// Interleaved RGB, valid until the decoder's next call (unless kept).
struct Rows {
  const std::uint8_t* data = nullptr;  ///< first pixel of the region in the first row
  std::ptrdiff_t stride = 0;           ///< bytes
  std::int32_t count = 0;
};

/// One image at a time: open, begin, then next until all rows of the region are read (or abandon it by open).
/// Handles and buffers are reused. Not thread safe: one per worker. Hostile input is safe. Only allocation
/// throws (std::bad_alloc); the decoder can be used again after that.
///
/// What is delivered is right: rows below the region are not decoded, so damage there goes unseen. A JPEG
/// without an end-of-image marker is truncated whatever the region, and one with a marker that no scan may
/// hold is corrupt, as for PIL; a PNG without IEND whose pixels end early is truncated.
class Decoder {
 public:
  Decoder();
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  /// Reads the header. The bytes must live until the last call of next. Refuses more than max_pixels pixels
  /// before it allocates anything for them.
  Decoded<ImageSize> open(const ImageData& image, std::uint64_t max_pixels);

  /// `region` lies within the image and is not empty. keep: blocks stay valid until the next open, and follow
  /// one another in memory with one stride.
  Decoded<void> begin(Rect region, bool keep);

  /// The region's next rows, kBlockRows of them or what is left.
  Decoded<Rows> next();

  /// The decoder repaired something in what was read so far (libjpeg's warnings), or smoothed over what a
  /// progressive JPEG lacks.
  [[nodiscard]] bool warned() const;
  [[nodiscard]] std::string_view warning() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::server::decode
