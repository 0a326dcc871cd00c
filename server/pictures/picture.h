// An 8-bit image in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/error.h"
#include "server/decode/decoder.h"

namespace headrace::server::pictures {

struct Picture {
  decode::PixelShape shape;  ///< not planar
  std::vector<std::uint8_t> pixels;
};

/// REQUIRES: `bytes` has as many as `shape` says.
Picture interleaved(std::span<const std::uint8_t> bytes, const decode::PixelShape& shape);

/// The image in a box of side x side pixels, in RGB: reduced to that size, or enlarged by a whole factor, so
/// that single pixels stay visible. kBadSample: it cannot be decoded.
Result<Picture> fit(const decode::ImageData& image, std::int32_t side);

}  // namespace headrace::server::pictures
