// Writes pixels as a PNG file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/error.h"
#include "server/decode/decoder.h"

namespace headrace::server::pictures {

/// Interleaved pixels, gray or RGB; optimized for speed, not size. kEnvironment: no memory. Any thread may
/// call it.
Result<std::vector<std::uint8_t>> encode_png(std::span<const std::uint8_t> pixels,
                                             const decode::PixelShape& shape);

}  // namespace headrace::server::pictures
