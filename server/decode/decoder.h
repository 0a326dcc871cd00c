// Decodes image files or bare pixels to rows of 8-bit RGB: the pixels of PIL's
// Image.open(...).convert("RGB"), limited to a region of interest.
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

/// The shape of 8-bit pixels without a file format: gray, or red, green, blue.
struct PixelShape {
  std::int32_t width = 0, height = 0;
  std::int32_t channels = 3;  ///< 1 or 3
  bool planar = false;        ///< channels are stored one after the other

  friend bool operator==(const PixelShape&, const PixelShape&) = default;
};

/// A decoder's input: a JPEG or PNG file, or pixels of that shape.
struct ImageData {
  std::span<const std::uint8_t> bytes;
  PixelShape pixels;     ///< width 0: a file
  bool indices = false;  ///< return palette indices or stored gray values, in all three channels

  template <std::convertible_to<std::span<const std::uint8_t>> Bytes>
  // NOLINTNEXTLINE(google-explicit-constructor): a file's bytes are image data
  ImageData(const Bytes& file) : bytes(file) {}
  ImageData(std::span<const std::uint8_t> all, const PixelShape& shape) : bytes(all), pixels(shape) {}
};

/// Most rows in a block: the input of one resize pass, and one MCU row of a 4:2:0 JPEG.
inline constexpr std::int32_t kBlockRows = 16;
/// Bytes that may be read (not written) past the last pixel of a row.
inline constexpr std::size_t kRowSlack = 64;
/// A progressive file can make its reader process all coefficients once per scan. More scans are refused, and
/// more scans times pixels: that would take several seconds.
inline constexpr int kMaxScans = 500;
inline constexpr std::uint64_t kMaxScannedPixels = 2'000'000'000;
inline bool too_many_scans(int scans, std::uint64_t pixels) {
  return scans > kMaxScans || (scans > 1 && static_cast<std::uint64_t>(scans) * pixels > kMaxScannedPixels);
}

/// Longest side: JPEG's own limit. PNG allows 2^31 - 1, but a block of such rows would not fit into memory.
inline constexpr std::uint32_t kMaxSide = 65'535;

/// Interleaved RGB, valid until the decoder's next call (unless kept).
struct Rows {
  const std::uint8_t* data = nullptr;  ///< first pixel of the region in the first row
  std::ptrdiff_t stride = 0;           ///< bytes
  std::int32_t count = 0;
};

/// Decodes one image at a time: open, begin, then next until all rows of the region are read (open abandons
/// it). Handles and buffers are reused. Not thread safe: one per worker. Hostile input is safe. Only
/// allocation throws (std::bad_alloc), and begin() and next() throw Stopped (stop.h); the decoder can be used
/// again afterwards.
///
/// Delivered pixels are correct: rows below the region are not decoded, so damage there goes unnoticed. As in
/// PIL, a JPEG without an end-of-image marker is truncated whatever the region, and one with a marker that no
/// scan may contain is corrupt; a PNG without IEND whose pixels end early is truncated.
class Decoder {
 public:
  Decoder();
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  /// Reads the header. The bytes must stay valid until the last call of next. Refuses more than max_pixels
  /// pixels before allocating memory for them.
  Decoded<ImageSize> open(const ImageData& image, std::uint64_t max_pixels);

  /// `region` is within the image and not empty. keep: blocks stay valid until close() or the next open, and
  /// are contiguous in memory with one stride. Waits while other threads decode large images (turn.h).
  /// `more`: bytes that the caller needs for this image until close().
  Decoded<void> begin(Rect region, bool keep, std::size_t more = 0);

  /// The region's next rows: kBlockRows of them, or the rest.
  Decoded<Rows> next();

  /// The last image and its blocks are no longer needed. Without `keep`, its last block says so as well.
  void close();
  /// Whether this is a large image, whose memory must be freed before close().
  [[nodiscard]] bool has_turn() const;

  /// Whether the decoder repaired something in what was read so far (libjpeg's warnings), or smoothed over
  /// missing scans of a progressive JPEG.
  [[nodiscard]] bool warned() const;
  [[nodiscard]] std::string_view warning() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::server::decode
