// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
// 3"). Keyed by what a draw belongs to, so that it depends on nothing else: not on threads, order or
// restarts.
#pragma once

#include <array>
#include <cstdint>

namespace headrace::server::sampler {

/// One block: the key schedule and 10 rounds of the paper.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// The draws of one transform at one position. Copyable, cheap; draw i is the same whenever it is asked for.
class Draws {
 public:
  /// `stage`: index of the transform in the plan (0xFFFF0000 and above are Headrace's own, e.g.
  /// replacements).
  Draws(std::uint64_t seed, std::uint64_t epoch, std::uint64_t position, std::uint32_t stage);

  std::uint32_t next_u32();
  double uniform();                         ///< [0, 1), 53 bits
  double uniform(double low, double high);  ///< low + (high - low) * uniform()
  /// Uniform integer in [0, bound), unbiased (Lemire 2019). bound >= 1.
  std::uint32_t below(std::uint32_t bound);
  bool bernoulli(double p) { return uniform() < p; }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  int left_ = 0;
};

}  // namespace headrace::server::sampler
