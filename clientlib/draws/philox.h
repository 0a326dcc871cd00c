// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
// 3"). The key says what a draw is for, so a draw does not depend on threads, order or restarts. The server,
// the GPU kernel and the CPU backend compile the same code. C++17 for CUDA's compiler.
#pragma once

#include <cstdint>

#include "clientlib/pixels/hd.h"

namespace headrace::draws {

struct Block {
  std::uint32_t words[4];
};

HEADRACE_HD inline std::uint32_t low(std::uint64_t v) {
  return static_cast<std::uint32_t>(v);
}
HEADRACE_HD inline std::uint32_t high(std::uint64_t v) {
  return static_cast<std::uint32_t>(v >> 32);
}

/// One block: the key schedule and 10 rounds of the paper.
HEADRACE_HD inline Block philox4x32(Block counter, std::uint32_t key0, std::uint32_t key1) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::uint32_t a = counter.words[0], b = counter.words[1], c = counter.words[2], d = counter.words[3];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = static_cast<std::uint64_t>(kMultiplier0) * a;
    const std::uint64_t p1 = static_cast<std::uint64_t>(kMultiplier1) * c;
    a = high(p1) ^ b ^ key0;
    b = low(p1);
    c = high(p0) ^ d ^ key1;
    d = low(p0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {{a, b, c, d}};
}

/// The draws of one transform at one position. Cheap to copy. Draw i has the same value at each call.
class Draws {
 public:
  /// `stage`: index of the transform in the plan (0xFFFF0000 and above are Headrace's own, e.g.
  /// replacements). Seed, epoch, stage and position have more bits than one counter, so (seed, epoch, stage)
  /// is first turned into a subkey.
  HEADRACE_HD Draws(std::uint64_t seed, std::uint64_t epoch, std::uint64_t position, std::uint32_t stage) {
    const Block sub = philox4x32({{low(epoch), high(epoch), stage, 0}}, low(seed), high(seed));
    key_[0] = sub.words[0];
    key_[1] = sub.words[1];
    counter_ = {{low(position), high(position), 0, sub.words[2]}};
  }

  HEADRACE_HD std::uint32_t next_u32() {
    if (left_ == 0) {
      block_ = philox4x32(counter_, key_[0], key_[1]);
      ++counter_.words[2];
      left_ = 4;
    }
    return block_.words[4 - left_--];
  }
  /// [0, 1), 53 bits.
  HEADRACE_HD double uniform() {
    const std::uint64_t upper = next_u32();
    const std::uint64_t bits = upper << 32 | next_u32();
    return static_cast<double>(bits >> 11) * (1.0 / 9007199254740992.0);  // 2^-53: exact
  }
  /// from + (to - from) * uniform().
  HEADRACE_HD double uniform(double from, double to) { return from + (to - from) * uniform(); }
  /// Uniform integer in [0, bound), unbiased (Lemire 2019). bound >= 1.
  HEADRACE_HD std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = static_cast<std::uint64_t>(next_u32()) * bound;
    if (low(product) < bound) {
      const std::uint32_t threshold = (0U - bound) % bound;
      while (low(product) < threshold) product = static_cast<std::uint64_t>(next_u32()) * bound;
    }
    return high(product);
  }
  HEADRACE_HD bool bernoulli(double p) { return uniform() < p; }

 private:
  std::uint32_t key_[2];
  Block counter_;
  Block block_{};
  int left_ = 0;
};

}  // namespace headrace::draws
