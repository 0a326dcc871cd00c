// Restart-tiled JPEG: a baseline JPEG with a restart marker after every few MCUs and an index of the tiles
// that lie between them. Three quarters of a JPEG's decoding is entropy decoding, which knows no way to skip:
// of a tiled file, a region is decoded from a small JPEG that is spliced of just the tiles that it touches.
//
//   SOI | index | APPn and COM segments | tables: DQT, SOF, DHT, DRI, SOS | tile RST0 tile RST1 ... tile EOI
//
// A row of MCUs is a whole number of tiles: where it is not by itself, up to 5 MCUs are appended, and SOF has
// that padded width. Programs that do not know the index then show up to 5 MCUs more at the right; if nothing
// had to be appended, the file is to them the same picture. `tile_jpeg.h` writes such files.
//
// The index, in one or several APP10 segments right behind SOI, each with the tag "HEADRACE tile\1"; integers
// are big-endian, as everywhere in a JPEG:
//
//   u16 width, u16 height     of the image, without what was appended
//   u16 tile                  MCUs
//   u16 tables                bytes from DQT to the end of SOS
//   u16 length per tile       bytes, without the marker behind it; row after row
//
// Nothing in it says where something lies in the file: so it survives when other segments come or go.
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
/// MCUs of a tile of a file that is written: 4, and 6 where they are 8 pixels wide. Fewer cost more bytes and
/// more of Huffman decoding's slow path, which begins near a marker; more are too coarse for crops (measured:
/// tests/bench/README.md).
std::int32_t tile_mcus(std::int32_t mcu_width);

/// What a JPEG's own headers say.
struct JpegFrame {
  ImageSize size;  ///< as in SOF
  ImageSize mcu;   ///< pixels
  std::uint32_t restart_mcus = 0;
  std::size_t scan = 0;  ///< where SOS ends and the first tile begins
};

/// Which tiles a region needs, as an image of their own.
struct TileCut {
  std::int32_t column = 0, row = 0, columns = 0, rows = 0;  ///< of tiles
  std::int32_t left = 0, top = 0;                           ///< its first pixel within the image
  ImageSize coded;                                          ///< what its SOF says
  std::int32_t width = 0;                                   ///< without what was appended
  bool whole = false;  ///< nothing would be gained: decode the file itself
};

/// The index of one file (of more than one column of tiles), read from bytes that nobody vouches for. Reused
/// for file after file; its buffer grows to the largest one. Not thread safe.
class TileMap {
 public:
  /// Whether the file begins as one with an index; costs nothing for one without.
  static bool claimed_by(std::span<const std::uint8_t> file);

  /// Of a file that claims an index. False: it does not fit the file, which is no image then: its own headers
  /// may have the wrong width. After that, only read() may be called. The bytes must outlive what follows.
  bool read(std::span<const std::uint8_t> file, const JpegFrame& frame);

  [[nodiscard]] ImageSize size() const { return size_; }
  /// `region` lies within size() and is not empty. Includes the pixels around it which fancy upsampling looks
  /// at.
  [[nodiscard]] TileCut cut(Rect region) const;
  /// A whole JPEG file, without any APPn segments: so its colour space is that of this file's header. Valid
  /// until the next call. Empty: a tile is not followed by its restart marker, so the index is wrong.
  std::span<const std::uint8_t> splice(const TileCut& cut);

 private:
  std::span<const std::uint8_t> file_;
  ImageSize size_, coded_, tile_;
  std::int32_t columns_ = 0, rows_ = 0;
  std::size_t tables_ = 0, scan_ = 0;
  std::size_t frame_ = 0;              ///< of SOF within the tables
  std::vector<std::uint32_t> starts_;  ///< of each tile in the file, and where one more would begin
  std::vector<std::uint8_t> spliced_;
};

/// The index of a file that is written: its segments with their markers, to be put behind SOI. nullopt: a
/// tile or the tables are longer than it can say.
std::optional<std::vector<std::uint8_t>> tile_index(ImageSize size, std::int32_t mcus, std::size_t tables,
                                                    std::span<const std::uint32_t> lengths);

}  // namespace headrace::server::decode
