// Rewrites a JPEG as a restart-tiled one (jpeg_tiles.h) without loss: coefficients do not change, and every
// pixel is compared.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "server/decode/decoder.h"

namespace headrace::server::decode {

/// The result for a file. Never renumber within a release: indexes TilingCounts.
enum class Tiling : std::uint8_t {
  kTiled,
  kNoJpeg,       ///< judged by its first bytes
  kAlready,      ///< it has an index
  kSmall,        ///< at most one tile wide, or half as large again when tiled
  kLarge,        ///< more than kMostTiledPixels, or wider than a JPEG can be once it is padded
  kUnsupported,  ///< arithmetic coding; scans or samplings that one baseline scan cannot have
  kWarned,       ///< the decoder repairs it: it must do so again, and report it
  kUndecodable,
  kDiffers  ///< it would not decode to the same pixels
};
inline constexpr std::size_t kTilings = 9;
/// "tiled", "no JPEG", ...
std::string_view name_of(Tiling tiling);

/// Rewriting keeps all coefficients in memory twice: about 12 bytes per pixel.
inline constexpr std::uint64_t kMostTiledPixels = std::uint64_t{1} << 25;

/// Totals of many files.
struct TilingCounts {
  std::array<std::uint64_t, kTilings> files{};
  std::uint64_t before = 0, after = 0;  ///< bytes of the tiled files
  TilingCounts& operator+=(const TilingCounts& other);
};

/// Turns sequential and progressive Huffman-coded JPEGs of 8 bits into baseline ones with one interleaved
/// scan, optimal tables and a restart marker every tile_mcus() MCUs. Besides the coefficients, it keeps
/// quantization tables, samplings, component ids, and all APPn and COM segments before the first scan, so the
/// same color space is inferred. Data after the end-of-image marker is dropped.
///
/// Follows jpegtran (libjpeg's transupp.c) and checks each file: both versions are decoded and compared, and
/// a file that differs stays as it is.
///
/// Takes about 10 ms for an image of 500 x 375. Not thread safe: one per worker. Hostile input is safe. Only
/// allocation throws.
class JpegTiler {
 public:
  JpegTiler();
  ~JpegTiler();
  JpegTiler(JpegTiler&&) noexcept;
  JpegTiler& operator=(JpegTiler&&) noexcept;

  /// `out` is the tiled file if the result is kTiled, otherwise unspecified.
  Tiling tile(std::span<const std::uint8_t> file, std::vector<std::uint8_t>& out);

  /// Bytes that are enough for the tiled version of nearly every file of this size and header (499 of 500 of
  /// ImageNet); at least the file's own size. 0: the header shows that it stays as it is, or it has more than
  /// `most_pixels`. Takes a few microseconds.
  static std::uint64_t room(std::span<const std::uint8_t> file, std::uint64_t most_pixels);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace headrace::server::decode
