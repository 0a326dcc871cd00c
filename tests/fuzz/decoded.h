// What the decoder makes of a file, for targets: the same pixels or the same refusal each time, and of a
// region the pixels that the whole image has there.
#pragma once

#include <optional>
#include <vector>

#include "server/decode/decoder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/pixels/regions.h"

namespace headrace::fuzz {

/// Enough for every way in which a row of MCUs can end; more would only cost time.
inline constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 16;

using Pixels = std::vector<std::uint8_t>;

inline server::decode::Decoded<Pixels> decode(server::decode::Decoder& decoder,
                                              const server::decode::ImageData& image,
                                              const server::decode::Rect& region, bool keep) {
  auto opened = decoder.open(image, kMostPixels);
  if (!opened) return tl::make_unexpected(std::move(opened.error()));
  if (auto begun = decoder.begin(region, keep); !begun) return tl::make_unexpected(std::move(begun.error()));
  Pixels pixels;
  while (pixels.size() <
         static_cast<std::size_t>(region.height) * static_cast<std::size_t>(region.width) * 3) {
    auto rows = decoder.next();
    if (!rows) return tl::make_unexpected(std::move(rows.error()));
    require(rows->count > 0 && rows->count <= server::decode::kBlockRows, "a block has rows");
    for (std::int32_t i = 0; i < rows->count; ++i) {
      const auto* row = rows->data + i * rows->stride;
      pixels.insert(pixels.end(), row, row + 3 * std::ptrdiff_t{region.width});
    }
  }
  return pixels;
}

/// A region within the image, by four bytes.
inline server::decode::Rect take_region(Input& input, server::decode::ImageSize size) {
  const auto along = [&input](std::int32_t side, std::int32_t& begin, std::int32_t& length) {
    begin = static_cast<std::int32_t>(input.take<std::uint8_t>()) * side / 256;
    length = 1 + static_cast<std::int32_t>(input.take<std::uint8_t>()) * (side - begin - 1) / 255;
  };
  server::decode::Rect region;
  along(size.width, region.left, region.width);
  along(size.height, region.top, region.height);
  return region;
}

/// Its size, if it can be opened and is not too large for a target.
inline std::optional<server::decode::ImageSize> size_of(const server::decode::ImageData& image) {
  server::decode::Decoder decoder;
  const auto size = decoder.open(image, kMostPixels);
  if (!size) {
    require(!server::decode::to_string(size.error()).empty(), "a refusal says why");
    return std::nullopt;
  }
  require(size->width > 0 && size->height > 0, "an image that was opened has pixels");
  return *size;
}

struct Check {
  /// A JPEG of 200 columns that one of the decoders has read before. Its tables are then used for small
  /// files, too, while the other decoder leaves small files to libjpeg.
  Bytes before = {};
  /// Regions must show the whole's pixels, unlike those of a tiled JPEG with a forged index.
  bool one_picture = true;
};

/// The pixels of the whole image; nullopt: it was refused.
inline std::optional<Pixels> check_decoder(const server::decode::ImageData& image,
                                           server::decode::ImageSize size, const server::decode::Rect& region,
                                           const Check& check = {}) {
  const server::decode::Rect all{0, 0, size.width, size.height};
  server::decode::Decoder first, second;
  if (!check.before.empty()) (void)decode(first, check.before, {0, 0, 200, 1}, false);
  const auto part = decode(first, image, region, true);  // before the whole, whose buffers are larger
  const auto whole = decode(first, image, all, false);
  const bool warned = first.warned();
  const auto again = decode(second, image, all, true);
  require(whole.has_value() == again.has_value(), "a file is accepted each time, or never");
  if (!whole) {
    require(whole.error().reason == again.error().reason, "a file is refused for one reason");
    return std::nullopt;
  }
  require(*whole == *again && warned == second.warned(), "a file has the same pixels each time");
  if (!warned && check.one_picture) {
    require(part.has_value(), "a sound file has every region");
    require(*part == pixels::cut(*whole, size.width, region), "a region has the pixels of the whole");
  }
  return *whole;
}

}  // namespace headrace::fuzz
