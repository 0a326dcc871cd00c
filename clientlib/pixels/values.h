// Converts a byte to the value that a float row holds. The server, the GPU kernel and the CPU backend compile
// the same code. C++17 for CUDA's compiler.
#pragma once

#include <cstdint>

#include "clientlib/pixels/halves.h"
#include "clientlib/pixels/hd.h"

namespace headrace::pixels {

enum class ValueType : std::uint8_t { kFloat32, kFloat16, kBFloat16 };

/// The bits of a value in memory. Half types are in the low 16 bits, rounded to the nearest, ties to even.
HEADRACE_HD inline std::uint32_t bits_of(float value, ValueType type) {
  if (type == ValueType::kFloat16) return half_of(value);
  if (type == ValueType::kBFloat16) return bfloat_of(value);
  return bits_of(value);
}

/// Normalize, of one channel.
struct Normalization {
  bool normalized = false;  ///< false: x / 255 alone
  float mean = 0, std = 1;
};

/// (x / 255 - mean) / std, each rounded.
HEADRACE_HD inline std::uint32_t value_bits(std::uint8_t byte, const Normalization& how, ValueType type) {
  float value = static_cast<float>(byte) / 255.0F;
  if (how.normalized) {
    value = value - how.mean;
    value = value / how.std;
  }
  return bits_of(value, type);
}

}  // namespace headrace::pixels
