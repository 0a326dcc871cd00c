#include "server/decode/turn.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "clientlib/base/human.h"
#include "clientlib/ring/segment.h"
#include "server/decode/stop.h"

namespace headrace::server::decode {
namespace {

using Clock = std::chrono::steady_clock;

/// Another process may give memory back.
constexpr std::chrono::seconds kPatience{10};
/// How often free memory is measured, and a waiting thread looks whether it must stop.
constexpr std::chrono::milliseconds kCheck{100};

struct Turns {
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t bytes = 0;  // of all turns; guarded by mutex
};

/// Never destroyed: a worker may outlive static objects at exit.
Turns& turns() {
  static auto& all = *new Turns;
  return all;
}

/// Free memory as it was last measured. A measurement reads many files of /proc and /sys.
ring::MemoryHeadroom headroom() {
  struct Measured {
    std::mutex mutex;
    std::optional<Clock::time_point> at;
    ring::MemoryHeadroom free;
  };
  static auto& last = *new Measured;
  const std::scoped_lock lock(last.mutex);
  if (const auto now = Clock::now(); !last.at || now - *last.at >= kCheck) {
    last.free = ring::memory_headroom();
    last.at = now;
  }
  return last.free;
}

}  // namespace

Turn::Turn(Turn&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}

Turn& Turn::operator=(Turn&& other) noexcept {
  if (this != &other) {
    end();
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Decoded<Turn> Turn::take(std::size_t bytes) {
  if (bytes < kLarge) return Turn();
  const auto give_up = Clock::now() + kPatience;
  Turns& all = turns();
  for (;;) {
    throw_if_stopped();
    const auto free = headroom();
    std::unique_lock lock(all.mutex);
    // The others may not have touched all of their memory yet, so all of it counts as not yet used: fewer
    // images than possible are decoded at once, never too many.
    if (all.bytes + bytes <= free.bytes) {
      all.bytes += bytes;
      return Turn(bytes);
    }
    if (all.bytes == 0 && Clock::now() > give_up)
      return bad(BadReason::kTooLarge,
                 fmt::format("decoding needs {}, and {} are free ({})", human_bytes(bytes),
                             human_bytes(free.bytes), free.limited_by));
    all.ended.wait_for(lock, kCheck);
  }
}

void Turn::end() {
  const std::size_t bytes = std::exchange(bytes_, 0);
  if (bytes == 0) return;
  Turns& all = turns();
  {
    const std::scoped_lock lock(all.mutex);
    all.bytes -= bytes;
  }
  all.ended.notify_all();
}

}  // namespace headrace::server::decode
