// Rows that need no files, reading or decoding: how fast is the transport alone?
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "server/source/source.h"

namespace headrace::server::source {

/// `count` samples of `bytes` bytes each, all of label 0 and the one class "synthetic". kConfigInvalid if
/// either is 0.
Result<std::shared_ptr<const Source>> make_synthetic(std::uint64_t count, std::uint64_t bytes);

/// The content of sample `index`, without a detour: its number as 8 bytes little-endian, as far as they fit,
/// then zeros.
void fill_synthetic(std::uint64_t index, std::span<std::byte> row);

}  // namespace headrace::server::source
