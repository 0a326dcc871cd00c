// The two things that end a wait: a point in time (monotonic), or an interrupt by the caller.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

namespace headrace::client {

/// Called about every 50 ms while waiting; the wait ends if it returns true.
using Interrupt = std::function<bool()>;

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(std::chrono::milliseconds timeout)
      : begun_(Clock::now()), end_(begun_ + bounded(timeout)) {}

  /// Clamps a timeout to 0 .. 1 year: a caller's "for ever" would overflow in nanoseconds.
  static std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
    return std::clamp<std::chrono::milliseconds>(timeout, std::chrono::milliseconds(0),
                                                 std::chrono::hours(24 * 365));
  }

  [[nodiscard]] bool over() const { return Clock::now() >= end_; }
  [[nodiscard]] std::chrono::milliseconds left() const {
    return std::max(std::chrono::milliseconds(0),
                    std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()));
  }
  /// The earlier of this and `timeout` from now.
  [[nodiscard]] Deadline within(std::chrono::milliseconds timeout) const {
    return Deadline(std::min(timeout, left()));
  }
  [[nodiscard]] double seconds_spent() const {
    return std::chrono::duration<double>(Clock::now() - begun_).count();
  }

 private:
  Clock::time_point begun_;
  Clock::time_point end_;
};

}  // namespace headrace::client
