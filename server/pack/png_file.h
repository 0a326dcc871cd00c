// Pixels as a PNG file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/error.h"
#include "server/decode/decoder.h"

namespace headrace::server::pack {

/// Interleaved pixels, gray or RGB; fast rather than small. kEnvironment: no memory. Any thread.
Result<std::vector<std::uint8_t>> encode_png(std::span<const std::uint8_t> pixels,
                                             const decode::PixelShape& shape);

}  // namespace headrace::server::pack
