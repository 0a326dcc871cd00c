// Rewrites a JPEG as a restart-tiled one (jpeg_tiles.h), without loss: the coefficients stay what they are,
// and every pixel is compared.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "server/decode/decoder.h"

namespace headrace::server::decode {

/// What became of a file. Never renumber within a release: indexes TilingCounts.
enum class Tiling : std::uint8_t {
  kTiled,
  kNoJpeg,       ///< by its first bytes
  kAlready,      ///< it has an index
  kSmall,        ///< one tile wide or less, or larger by half if it were tiled
  kLarge,        ///< more than kMostTiledPixels, or wider than a JPEG can be once it is padded
  kUnsupported,  ///< arithmetic coding; scans or samplings that one baseline scan cannot have
  kWarned,       ///< the decoder repairs something: it is to do so again, and to say so
  kUndecodable,
  kDiffers  ///< it would not give the same pixels
};
inline constexpr std::size_t kTilings = 9;
/// "tiled", "no JPEG", ...
std::string_view name_of(Tiling tiling);

/// Rewriting keeps all coefficients in memory twice: some 12 bytes a pixel.
inline constexpr std::uint64_t kMostTiledPixels = std::uint64_t{1} << 25;

/// Of many files.
struct TilingCounts {
  std::array<std::uint64_t, kTilings> files{};
  std::uint64_t before = 0, after = 0;  ///< bytes of those that were tiled
  TilingCounts& operator+=(const TilingCounts& other);
};

/// Sequential and progressive Huffman-coded JPEGs of 8 bits become baseline ones of one interleaved scan with
/// optimal tables and a restart marker every tile_mcus() MCUs. Kept besides the coefficients: quantisation
/// tables, samplings, component ids, all APPn and COM segments in front of the first scan: so the same colour
/// space is guessed. What is behind the end-of-image marker goes.
///
/// After jpegtran (libjpeg's transupp.c), and proved for each file: both are decoded and compared, and a file
/// that differs stays as it is.
///
/// Some 10 ms for an image of 500 x 375. Not thread safe: one per worker. Hostile input is safe. Only
/// allocation throws.
class JpegTiler {
 public:
  JpegTiler();
  ~JpegTiler();
  JpegTiler(JpegTiler&&) noexcept;
  JpegTiler& operator=(JpegTiler&&) noexcept;

  /// `out` is the tiled file if the answer is kTiled, otherwise of no meaning.
  Tiling tile(std::span<const std::uint8_t> file, std::vector<std::uint8_t>& out);

  /// Bytes in which nearly every file of this size and header (499 of 500 of ImageNet) finds room once it
  /// is tiled, at least those of the file. 0: it stays as it is, by its header, or has more than
  /// `most_pixels`. Some microseconds.
  static std::uint64_t room(std::span<const std::uint8_t> file, std::uint64_t most_pixels);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace headrace::server::decode
