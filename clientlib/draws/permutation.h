// A keyed permutation of [0, n): Feistel network with cycle walking (Black & Rogaway 2002, "Ciphers with
// arbitrary finite domains"). It gives the order of an epoch: O(1) memory, one index at a time, the same on
// every machine. The server, the GPU kernel and the CPU backend compile the same code. C++17 for CUDA's
// compiler.
#pragma once

#include <cstdint>

#include "clientlib/draws/philox.h"
#include "clientlib/pixels/hd.h"

namespace headrace::draws {

inline constexpr std::uint32_t kOrderStage = 0xFFFF0001;  ///< the stage of Draws that gives an epoch's keys

struct Feistel {
  std::uint64_t n = 1;
  std::uint32_t half_bits = 1;
  /// One key per round. Four rounds are provably enough only for large halves; a small n needs more.
  std::uint64_t keys[8] = {};
};

/// n >= 1.
HEADRACE_HD inline Feistel feistel_of(std::uint64_t n, Draws keys) {
  Feistel feistel;
  feistel.n = n;
  std::uint32_t bits = 0;
  for (std::uint64_t rest = n - 1; rest != 0; rest >>= 1) ++bits;
  feistel.half_bits = bits > 2 ? (bits + 1) / 2 : 1;
  for (std::uint64_t& key : feistel.keys) {
    key = static_cast<std::uint64_t>(keys.next_u32()) << 32;
    key |= keys.next_u32();
  }
  return feistel;
}

/// The order in which a shuffled epoch visits n >= 1 samples.
HEADRACE_HD inline Feistel epoch_order(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  return feistel_of(n, Draws(seed, epoch, 0, kOrderStage));
}

/// The finaliser of SplitMix64 (Steele et al. 2014): a bijection whose output bits depend on all input bits.
HEADRACE_HD inline std::uint64_t mix(std::uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
  return z ^ z >> 31;
}

/// position < n.
HEADRACE_HD inline std::uint64_t permuted(const Feistel& feistel, std::uint64_t position) {
  const std::uint32_t half = feistel.half_bits;
  const std::uint64_t mask = (static_cast<std::uint64_t>(1) << half) - 1;
  std::uint64_t x = position;
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (const std::uint64_t key : feistel.keys) {
      const std::uint64_t next = left ^ (mix(right + key) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= feistel.n);
  return x;
}

}  // namespace headrace::draws
