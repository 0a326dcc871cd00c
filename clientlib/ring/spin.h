// Whether it pays to look again for some microseconds before sleeping. A sleep and its wake cost both sides
// several of them, so who has lately waited for less spins; who waits longer, as trainers do for batches that
// take milliseconds, sleeps at once.
//
// Thread safety: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace::ring {

class SpinBudget {
 public:
  /// How long to spin before the next sleep, ns. One wait in 64 tries it all the same: a wait that was slept
  /// through is longer by the wake than the one that it might have been.
  [[nodiscard]] std::uint64_t ns() const { return expected_ns_ <= kWorth || waits_ % 64 == 0 ? kWorth : 0; }

  void waited(std::uint64_t ns) {
    ++waits_;
    // A short one was spun through: it is believed at once.
    expected_ns_ = ns <= kWorth ? ns : (3 * expected_ns_ + std::min(ns, 8 * kWorth)) / 4;
  }

 private:
  static constexpr std::uint64_t kWorth = 10'000;
  std::uint64_t expected_ns_ = 0;
  std::uint32_t waits_ = 0;
};

}  // namespace headrace::ring
