// Rows that need no files, reading or decoding, to measure the speed of the transport alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "server/source/source.h"

namespace headrace::server::source {

/// `count` samples of `bytes` bytes each, all with label 0 and the only class "synthetic". kConfigInvalid if
/// either is 0.
Result<std::shared_ptr<const Source>> make_synthetic(std::uint64_t count, std::uint64_t bytes);

/// Writes the content of sample `index`: its number as 8 bytes little-endian, as far as they fit, then zeros.
void fill_synthetic(std::uint64_t index, std::span<std::byte> row);

}  // namespace headrace::server::source
