// What a byte of each channel becomes: ToTensor's x / 255 and Normalize, in torch's single precision.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "clientlib/pixels/halves.h"
#include "headrace/field.h"

namespace headrace::pixels {

/// Exact values, float32 or (half types) in the low 16 bits.
using ValueTable = std::array<std::array<std::uint32_t, 256>, 3>;

/// What a value is in memory: float32, or (half types, rounded to the nearest, ties to even) the low 16 bits.
inline std::uint32_t bits_of(float value, DType dtype) {
  if (dtype == DType::kFloat16) return half_of(value);
  if (dtype == DType::kBFloat16) return bfloat_of(value);
  return std::bit_cast<std::uint32_t>(value);
}

/// (x / 255 - mean) / std, each rounded; mean and std both empty: x / 255. One entry stands for all channels.
inline ValueTable value_table(DType dtype, std::span<const float> mean, std::span<const float> std) {
  ValueTable table;
  for (std::size_t c = 0; c < table.size(); ++c) {
    for (std::size_t b = 0; b < 256; ++b) {
      float value = static_cast<float>(b) / 255.0F;
      if (!mean.empty()) {
        value = value - mean[c % mean.size()];
        value = value / std[c % std.size()];
      }
      table[c][b] = bits_of(value, dtype);
    }
  }
  return table;
}

/// As means and deviations come from elsewhere: in double.
inline ValueTable value_table(DType dtype, const std::vector<double>& mean, const std::vector<double>& std) {
  return value_table(dtype, std::vector<float>(mean.begin(), mean.end()),
                     std::vector<float>(std.begin(), std.end()));
}

}  // namespace headrace::pixels
