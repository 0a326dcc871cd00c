// Regions of images through the decoder, for tests.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "server/decode/decoder.h"

namespace headrace::pixels {

/// All rows of a region (width 0: of the whole image), tightly packed RGB.
inline server::decode::Decoded<std::vector<std::uint8_t>> decode_region(server::decode::Decoder& decoder,
                                                                        std::span<const std::uint8_t> file,
                                                                        server::decode::Rect region,
                                                                        bool keep = false) {
  constexpr std::uint64_t kMaxPixels = 178'956'970;
  const auto size = decoder.open(file, kMaxPixels);
  if (!size) return tl::make_unexpected(size.error());
  if (region.width == 0) region = {0, 0, size->width, size->height};
  if (auto begun = decoder.begin(region, keep); !begun) return tl::make_unexpected(begun.error());
  std::vector<std::uint8_t> pixels;
  const auto row_bytes = static_cast<std::ptrdiff_t>(region.width) * 3;
  for (std::int32_t done = 0; done < region.height;) {
    auto rows = decoder.next();
    if (!rows) return tl::make_unexpected(rows.error());
    for (std::int32_t i = 0; i < rows->count; ++i) {
      const auto* row = rows->data + i * rows->stride;
      pixels.insert(pixels.end(), row, row + row_bytes);
    }
    done += rows->count;
  }
  return pixels;
}

/// The rectangle of a whole image of that width.
inline std::vector<std::uint8_t> cut(const std::vector<std::uint8_t>& image, std::int32_t width,
                                     server::decode::Rect region) {
  std::vector<std::uint8_t> pixels;
  for (std::int32_t y = region.top; y < region.top + region.height; ++y) {
    const auto* row = image.data() + (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                                      static_cast<std::size_t>(region.left)) *
                                         3;
    pixels.insert(pixels.end(), row, row + static_cast<std::ptrdiff_t>(region.width) * 3);
  }
  return pixels;
}

inline int below(std::mt19937& random, int n) {
  return static_cast<int>(random() % static_cast<unsigned>(n));
}

/// Within an image; one in four touches each edge.
inline server::decode::Rect random_region(std::mt19937& random, server::decode::ImageSize image) {
  server::decode::Rect region;
  region.width = 1 + below(random, image.width);
  region.height = 1 + below(random, image.height);
  const auto place = [&random](std::int32_t room) {
    const int edge = below(random, 4);
    return edge == 0 ? 0 : edge == 1 ? room : below(random, room + 1);
  };
  region.left = place(image.width - region.width);
  region.top = place(image.height - region.height);
  return region;
}

}  // namespace headrace::pixels
