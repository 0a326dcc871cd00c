// Decides whether a waiter spins for some microseconds before it sleeps. A sleep and its wake cost both sides
// several microseconds, so a waiter spins if its recent waits were shorter than that. If they were longer, as
// for trainers whose batches take milliseconds, it sleeps at once.
//
// Thread safety: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace::ring {

class SpinBudget {
 public:
  /// How long to spin before the next sleep, in ns. One wait in 64 always spins, because the measured time of
  /// a wait with a sleep includes the wake: only spinning shows that waits have become short.
  [[nodiscard]] std::uint64_t ns() const { return expected_ns_ <= kWorth || waits_ % 64 == 0 ? kWorth : 0; }

  void waited(std::uint64_t ns) {
    ++waits_;
    // A short wait was measured while spinning, so it counts at once; longer ones are averaged.
    expected_ns_ = ns <= kWorth ? ns : (3 * expected_ns_ + std::min(ns, 8 * kWorth)) / 4;
  }

 private:
  static constexpr std::uint64_t kWorth = 10'000;
  std::uint64_t expected_ns_ = 0;
  std::uint32_t waits_ = 0;
};

}  // namespace headrace::ring
