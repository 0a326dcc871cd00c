// A table of the value for each byte of each channel: ToTensor's x / 255 and Normalize, in torch's single
// precision.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "clientlib/pixels/values.h"
#include "headrace/field.h"

namespace headrace::pixels {

inline ValueType value_type(DType dtype) {
  if (dtype == DType::kFloat16) return ValueType::kFloat16;
  return dtype == DType::kBFloat16 ? ValueType::kBFloat16 : ValueType::kFloat32;
}

inline std::uint32_t bits_of(float value, DType dtype) {
  return bits_of(value, value_type(dtype));
}

/// Exact values, float32 or (half types) in the low 16 bits.
using ValueTable = std::array<std::array<std::uint32_t, 256>, 3>;

/// If mean and std are both empty, only x / 255. One entry applies to all channels.
inline ValueTable value_table(DType dtype, std::span<const float> mean, std::span<const float> std) {
  ValueTable table;
  for (std::size_t c = 0; c < table.size(); ++c) {
    Normalization how;
    if (!mean.empty()) how = {true, mean[c % mean.size()], std[c % std.size()]};
    for (std::size_t b = 0; b < 256; ++b)
      table[c][b] = value_bits(static_cast<std::uint8_t>(b), how, value_type(dtype));
  }
  return table;
}

}  // namespace headrace::pixels
