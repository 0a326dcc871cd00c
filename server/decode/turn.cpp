#include "server/decode/turn.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "clientlib/base/human.h"
#include "clientlib/ring/segment.h"

namespace headrace::server::decode {
namespace {

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
  Turns& all = turns();
  std::unique_lock lock(all.mutex);
  for (;;) {
    // The others may not have touched all of their memory yet, so it counts as not used.
    const auto free = ring::memory_headroom();
    if (all.bytes == 0 && bytes > free.bytes)
      return bad(BadReason::kTooLarge,
                 fmt::format("decoding needs {}, and {} are free ({})", human_bytes(bytes),
                             human_bytes(free.bytes), free.limited_by));
    if (all.bytes + bytes <= free.bytes) break;
    all.ended.wait(lock);
  }
  all.bytes += bytes;
  return Turn(bytes);
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
