#include "server/decode/jpeg_tiles.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "server/decode/grow.h"

namespace headrace::server::decode {
namespace {

constexpr std::size_t kHead = 8;                           // size of the index head: four integers
constexpr std::size_t kSegmentHead = 4 + kTileTag.size();  // marker, length, tag
constexpr std::size_t kMostPayload = 65'535 - 2 - kTileTag.size() - 1;  // even: no integer is cut in two
constexpr std::uint16_t kMost16 = std::numeric_limits<std::uint16_t>::max();
/// Pixels beyond the region that fancy upsampling may use: one chroma sample, at most two pixels away.
constexpr std::int32_t kMargin = 2;
/// Fancy upsampling needs more than two chroma columns: if SOF claims more and the true width ends the row
/// earlier, libjpeg's C code would read past it. No cut is narrower than this.
constexpr std::int32_t kNarrow = 16;

std::uint32_t read16(const std::uint8_t* at) {
  return static_cast<std::uint32_t>(at[0]) << 8 | at[1];
}
void write16(std::uint8_t* at, std::uint32_t value) {
  at[0] = static_cast<std::uint8_t>(value >> 8);
  at[1] = static_cast<std::uint8_t>(value);
}

std::int32_t divide_up(std::int32_t a, std::int32_t b) {
  return (a + b - 1) / b;
}

/// The payload of the index segment at `at`; advances `at` past it. Empty: there is none.
std::span<const std::uint8_t> next_segment(std::span<const std::uint8_t> file, std::size_t& at) {
  const auto rest = file.subspan(at);
  if (rest.size() < kSegmentHead || rest[0] != 0xFF || rest[1] != kTileMarker ||
      std::memcmp(rest.data() + 4, kTileTag.data(), kTileTag.size()) != 0)
    return {};
  const std::size_t length = read16(rest.data() + 2) + std::size_t{2};
  if (length < kSegmentHead || length > rest.size()) return {};
  at += length;
  return rest.subspan(kSegmentHead, length - kSegmentHead);
}

/// The offset of a baseline image's frame header in the tables; 0: there is none.
std::size_t find_frame(std::span<const std::uint8_t> tables) {
  constexpr std::size_t kFrameBytes = 9;  // marker, length, precision, height, width
  for (std::size_t at = 0; at + kFrameBytes <= tables.size() && tables[at] == 0xFF;) {
    if (tables[at + 1] == 0xC0 || tables[at + 1] == 0xC1) return at;
    at += 2 + std::max<std::size_t>(read16(tables.data() + at + 2), 2);
  }
  return 0;
}

}  // namespace

bool TileMap::claimed_by(std::span<const std::uint8_t> file) {
  std::size_t at = 2;
  return file.size() > at && !next_segment(file, at).empty();
}

bool TileMap::read(std::span<const std::uint8_t> file, const JpegFrame& frame) {
  std::size_t at = 2;
  auto payload = next_segment(file, at);
  if (payload.size() < kHead || frame.scan > file.size() ||
      file.size() > std::numeric_limits<std::uint32_t>::max())
    return false;
  const auto number = [&payload](std::size_t i) {
    return static_cast<std::int32_t>(read16(payload.data() + 2 * i));
  };
  size_ = {number(0), number(1)};
  const std::int32_t mcus = number(2);
  const auto tables = static_cast<std::size_t>(number(3));
  if (size_.width == 0 || size_.height == 0 || mcus == 0 ||
      static_cast<std::uint32_t>(mcus) != frame.restart_mcus || tables > frame.scan)
    return false;
  coded_ = frame.size;
  tile_ = {mcus * frame.mcu.width, frame.mcu.height};
  columns_ = divide_up(size_.width, tile_.width);
  rows_ = divide_up(size_.height, tile_.height);
  const std::int32_t padded = columns_ * tile_.width;
  const bool exact = coded_.width == size_.width && padded - size_.width < frame.mcu.width;
  if (columns_ < 2 || coded_.height != size_.height || (coded_.width != padded && !exact)) return false;

  const std::size_t tiles = static_cast<std::size_t>(columns_) * static_cast<std::size_t>(rows_);
  if (tiles > file.size() / 2) return false;
  std::uint32_t* const starts = grow(starts_, tiles + 1);
  std::uint64_t end = frame.scan;
  std::size_t done = 0;
  payload = payload.subspan(kHead);
  for (;;) {
    if (payload.size() / 2 > tiles - done) return false;
    for (std::size_t i = 0; i + 1 < payload.size(); i += 2) {
      starts[done++] = static_cast<std::uint32_t>(end);
      end += read16(payload.data() + i) + std::uint64_t{2};
    }
    if (done == tiles) break;
    payload = next_segment(file, at);
    if (payload.size() < 2) return false;
  }
  if (end > file.size() || file[end - 2] != 0xFF || file[end - 1] != 0xD9) return false;
  starts[tiles] = static_cast<std::uint32_t>(end);
  file_ = file;
  scan_ = frame.scan;
  tables_ = frame.scan - tables;
  frame_ = find_frame(file.subspan(tables_, tables));
  return frame_ != 0;
}

TileCut TileMap::cut(Rect region) const {
  const std::int32_t right = std::min(size_.width, region.left + region.width + kMargin);
  const std::int32_t bottom = std::min(size_.height, region.top + region.height + kMargin);
  TileCut cut;
  cut.column = std::max(0, region.left - kMargin) / tile_.width;
  cut.row = std::max(0, region.top - kMargin) / tile_.height;
  while (cut.column > 0 && size_.width - cut.column * tile_.width < kNarrow) --cut.column;
  cut.columns = divide_up(right, tile_.width) - cut.column;
  cut.rows = divide_up(bottom, tile_.height) - cut.row;
  // If all columns are needed, rows below the region cost nothing: they are not read.
  if (cut.columns == columns_ && cut.row == 0) {
    cut.whole = true;
    cut.rows = rows_;
  }
  cut.left = cut.column * tile_.width;
  cut.top = cut.row * tile_.height;
  const bool last_column = cut.column + cut.columns == columns_;
  const bool last_row = cut.row + cut.rows == rows_;
  cut.coded = {last_column ? coded_.width - cut.left : cut.columns * tile_.width,
               last_row ? size_.height - cut.top : cut.rows * tile_.height};
  cut.width = last_column ? size_.width - cut.left : cut.coded.width;
  return cut;
}

std::span<const std::uint8_t> TileMap::splice(const TileCut& cut) {
  const auto columns = static_cast<std::size_t>(columns_);
  const auto start = [&](std::int32_t row, std::int32_t column) {
    return static_cast<std::size_t>(row) * columns + static_cast<std::size_t>(column);
  };
  const std::size_t tables = scan_ - tables_;
  std::size_t size = 2 + tables;
  for (std::int32_t row = cut.row; row < cut.row + cut.rows; ++row)
    size += starts_[start(row, cut.column + cut.columns)] - starts_[start(row, cut.column)];

  std::uint8_t* const out = grow(spliced_, size);
  out[0] = 0xFF;
  out[1] = 0xD8;
  std::memcpy(out + 2, file_.data() + tables_, tables);
  write16(out + 2 + frame_ + 5, static_cast<std::uint32_t>(cut.coded.height));
  write16(out + 2 + frame_ + 7, static_cast<std::uint32_t>(cut.coded.width));
  const std::size_t tiles = start(rows_, 0);
  const auto ends_with_marker = [&](std::size_t end, std::size_t tile) {
    return file_[end - 2] == 0xFF && file_[end - 1] == (tile + 1 == tiles ? 0xD9 : 0xD0 + (tile & 7));
  };
  std::size_t at = 2 + tables;
  unsigned marker = 0;
  for (std::int32_t row = cut.row; row < cut.row + cut.rows; ++row) {
    const std::size_t first = start(row, cut.column), last = first + static_cast<std::size_t>(cut.columns);
    if (first > 0 && !ends_with_marker(starts_[first], first - 1)) return {};
    std::memcpy(out + at, file_.data() + starts_[first], starts_[last] - starts_[first]);
    for (std::size_t tile = first; tile < last; ++tile) {
      if (!ends_with_marker(starts_[tile + 1], tile)) return {};
      at += starts_[tile + 1] - starts_[tile];
      out[at - 1] = static_cast<std::uint8_t>(0xD0 + (marker++ & 7));
    }
  }
  out[at - 1] = 0xD9;
  return {out, at};
}

std::int32_t tile_mcus(std::int32_t mcu_width) {
  return std::max(4, 48 / mcu_width);
}

std::optional<std::vector<std::uint8_t>> tile_index(ImageSize size, std::int32_t mcus, std::size_t tables,
                                                    std::span<const std::uint32_t> lengths) {
  std::vector<std::uint32_t> numbers = {
      static_cast<std::uint32_t>(size.width), static_cast<std::uint32_t>(size.height),
      static_cast<std::uint32_t>(mcus),
      static_cast<std::uint32_t>(std::min<std::size_t>(tables, kMost16 + 1))};
  numbers.insert(numbers.end(), lengths.begin(), lengths.end());
  std::vector<std::uint8_t> out;
  for (std::size_t done = 0; done < numbers.size();) {
    const std::size_t count = std::min(numbers.size() - done, kMostPayload / 2);
    std::size_t at = out.size();
    out.resize(at + kSegmentHead + 2 * count);
    out[at] = 0xFF;
    out[at + 1] = kTileMarker;
    write16(out.data() + at + 2, static_cast<std::uint32_t>(2 + kTileTag.size() + 2 * count));
    std::memcpy(out.data() + at + 4, kTileTag.data(), kTileTag.size());
    at += kSegmentHead;
    for (std::size_t i = 0; i < count; ++i, at += 2) {
      if (numbers[done + i] > kMost16) return std::nullopt;
      write16(out.data() + at, numbers[done + i]);
    }
    done += count;
  }
  return out;
}

}  // namespace headrace::server::decode
