// The checksum of what a slot publishes: its fields' values, its offsets and its row descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "clientlib/ring/layout.h"

namespace headrace::ring {

/// A slot's memory and where its parts are.
struct SlotBytes {
  const std::byte* begin;
  std::span<const FieldDesc> fields;
  std::uint64_t rows_offset;
  std::uint32_t row_capacity;
};

/// XXH3 of a slot that has this many rows; never 0, which stands for none. Offsets of ragged fields may be
/// garbage: what they exceed is not read.
[[nodiscard]] std::uint64_t checksum_of(const SlotBytes& slot, std::uint32_t rows);

}  // namespace headrace::ring
