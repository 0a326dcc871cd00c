// Permutation::apply()'s loop, for every instruction set that the compiler knows.
#pragma once

#include <cstdint>
#include <span>

namespace headrace::server::sampler {

/// Of Permutation, which is the twin in plain C++.
struct Feistel {
  std::uint64_t n = 1;
  std::uint32_t half_bits = 1;
  /// One per round; four are provably enough only for large halves, small n need more.
  std::uint64_t keys[8] = {};
};

/// Permutes each value in place; each is below n.
void permute(const Feistel& feistel, std::span<std::uint64_t> values);

}  // namespace headrace::server::sampler
