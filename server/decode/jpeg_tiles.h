// Restart-tiled JPEG: a baseline JPEG with a restart marker after every few MCUs and an index of the tiles
// between them. Three quarters of a JPEG's decoding time is entropy decoding, which cannot skip. In a tiled
// file, a region is decoded from a small JPEG that is spliced from just the tiles that it touches.
//
//   SOI | index | APPn and COM segments | tables: DQT, SOF, DHT, DRI, SOS | tile RST0 tile RST1 ... tile EOI
//
// A row of MCUs is a whole number of tiles: if necessary, up to 5 MCUs are appended, and SOF has the padded
// width. Programs that do not know the index then show up to 5 additional MCUs at the right; without padding,
// they show the same picture. `tile_jpeg.h` writes such files.
//
// The index is in one or several APP10 segments directly after SOI, each with the tag "HEADRACE tile\1";
// integers are big-endian, as everywhere in a JPEG:
//
//   u16 width, u16 height     of the image, without the padding
//   u16 tile                  MCUs
//   u16 tables                bytes from DQT to the end of SOS
//   u16 length per tile       bytes, without the marker after it; row after row
//
// The index contains no file offsets, so it survives the insertion or removal of other segments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "server/decode/decoder.h"

namespace headrace::server::decode {

inline constexpr std::string_view kTileTag{"HEADRACE tile\1", 14};
inline constexpr int kTileMarker = 0xEA;  ///< APP10
/// MCUs per tile in written files: 4, or 6 if they are 8 pixels wide. Fewer cost more bytes and more of
/// Huffman decoding's slow path, which begins near a marker; more are too coarse for crops (measured:
/// tests/bench/README.md).
std::int32_t tile_mcus(std::int32_t mcu_width);

/// The frame parameters in a JPEG's own headers.
struct JpegFrame {
  ImageSize size;  ///< as in SOF
  ImageSize mcu;   ///< pixels
  std::uint32_t restart_mcus = 0;
  std::size_t scan = 0;  ///< offset of the first tile, after SOS
};

/// The tiles that a region needs, as an image of their own.
struct TileCut {
  std::int32_t column = 0, row = 0, columns = 0, rows = 0;  ///< in tiles
  std::int32_t left = 0, top = 0;                           ///< its first pixel within the image
  ImageSize coded;                                          ///< the size in its SOF
  std::int32_t width = 0;                                   ///< without the padding
  bool whole = false;                                       ///< there is no gain: decode the file itself
};

/// The index of one file with more than one column of tiles, read from untrusted bytes. Reused for file after
/// file; its buffer grows to the largest one. Not thread safe.
class TileMap {
 public:
  /// Whether the file begins with an index; costs nothing if it does not.
  static bool claimed_by(std::span<const std::uint8_t> file);

  /// Reads the index of a file that claims one. False: it does not fit the file, which must be refused: its
  /// own headers may have the wrong width. After that, only read() may be called. The bytes must outlive the
  /// later calls.
  bool read(std::span<const std::uint8_t> file, const JpegFrame& frame);

  [[nodiscard]] ImageSize size() const { return size_; }
  /// `region` is within size() and not empty. Includes the surrounding pixels that fancy upsampling uses.
  [[nodiscard]] TileCut cut(Rect region) const;
  /// A complete JPEG file without APPn segments, so its color space must come from this file's header. Valid
  /// until the next call. Empty: a tile is not followed by its restart marker, so the index is wrong.
  std::span<const std::uint8_t> splice(const TileCut& cut);

 private:
  std::span<const std::uint8_t> file_;
  ImageSize size_, coded_, tile_;
  std::int32_t columns_ = 0, rows_ = 0;
  std::size_t tables_ = 0, scan_ = 0;
  std::size_t frame_ = 0;              ///< offset of SOF within the tables
  std::vector<std::uint32_t> starts_;  ///< of each tile in the file, and the end of the last
  std::vector<std::uint8_t> spliced_;
};

/// The index of a file to be written: its segments with their markers, to be inserted after SOI. nullopt: a
/// tile or the tables are too long for it.
std::optional<std::vector<std::uint8_t>> tile_index(ImageSize size, std::int32_t mcus, std::size_t tables,
                                                    std::span<const std::uint32_t> lengths);

}  // namespace headrace::server::decode
