// A minimal policy for a ring: every lane gets every batch, in order, with a bounded number of leases.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "clientlib/ring/fd_passing.h"
#include "clientlib/ring/futex.h"
#include "tests/unit/ring_harness.h"

namespace headrace::ring::testing {

inline std::uint64_t stress_factor() {
  const char* wish = std::getenv("HEADRACE_STRESS");
  return wish != nullptr && *wish != '0' ? 50 : 1;
}

class BroadcastLedger {
 public:
  BroadcastLedger(RingWriter& ring, std::uint64_t batches, std::size_t max_leases)
      : ring_(ring), slots_(ring.slot_count()), batches_(batches), max_leases_(max_leases) {}

  void join(std::uint32_t lane) { lanes_[lane] = {}; }

  /// The lane's client has ended: its leases end here, and not earlier.
  void drop(std::uint32_t lane) {
    ring_.detach(lane);
    lanes_.erase(lane);
    for (std::uint32_t s = 0; s < slots_.size(); ++s) {
      slots_[s].pending.erase(lane);
      slots_[s].leased.erase(lane);
      release_if_unused(s);
    }
  }

  /// One round of acks, fills and grants; false if there was nothing to do.
  bool step() {
    bool busy = take_acks();
    busy |= fill();
    return grant() || busy;
  }

  /// Sleeps until a client acks (SYNC server-sleeps), or for `bound`.
  void sleep(int doorbell, int bound_ms) {
    ring_.set_idle(kServerRests);
    bool acks = false;
    for (const auto& [lane, state] : lanes_) acks |= ring_.has_acks(lane);
    pollfd entry{.fd = doorbell, .events = POLLIN, .revents = 0};
    if (!acks && ::poll(&entry, 1, bound_ms) > 0) {
      std::uint64_t rung;
      [[maybe_unused]] const ssize_t got = ::read(doorbell, &rung, sizeof rung);
    }
    ring_.set_idle(kServerAwake);
  }

  [[nodiscard]] bool finished() const {
    return next_fill_ == batches_ && std::ranges::all_of(slots_, [](const Slot& slot) {
             return slot.pending.empty() && slot.leased.empty();
           });
  }
  [[nodiscard]] const std::set<std::uint32_t>& leased(std::uint32_t slot) const {
    return slots_[slot].leased;
  }
  [[nodiscard]] std::size_t leases_of(std::uint32_t lane) const { return lanes_.at(lane).leases.size(); }

 private:
  struct Slot {
    std::uint64_t batch = 0;
    std::set<std::uint32_t> pending, leased;
  };
  struct Lane {
    std::uint64_t next = 0;
    std::map<std::uint32_t, std::uint64_t> leases;  // slot -> generation
  };

  void release_if_unused(std::uint32_t s) {
    if (ring_.state(s) == SlotState::kReady && slots_[s].pending.empty() && slots_[s].leased.empty())
      ring_.release(s);
  }

  bool take_acks() {
    bool any = false;
    for (auto& [lane, state] : lanes_) {
      acks_.clear();
      if (const auto taken = ring_.take_acks(lane, acks_); !taken) ADD_FAILURE() << taken.error().to_string();
      for (const TakenAck& ack : acks_) {
        const auto lease = state.leases.find(ack.slot);
        if (lease == state.leases.end() || lease->second != ack.generation) {
          ADD_FAILURE() << "lane " << lane << " acked slot " << ack.slot << ", which it does not hold";
          continue;
        }
        state.leases.erase(lease);
        slots_[ack.slot].leased.erase(lane);
        release_if_unused(ack.slot);
        any = true;
      }
    }
    return any;
  }

  bool fill() {
    bool any = false;
    for (std::uint32_t s = 0; s < slots_.size() && next_fill_ < batches_; ++s) {
      if (ring_.state(s) != SlotState::kFree) continue;
      slots_[s].batch = next_fill_++;
      fill_and_publish(ring_, s, 1, slots_[s].batch);
      for (const auto& [lane, state] : lanes_) slots_[s].pending.insert(lane);
      any = true;
    }
    return any;
  }

  bool grant() {
    bool any = false;
    for (auto& [lane, state] : lanes_)
      while (state.leases.size() < max_leases_) {
        const auto ready =
            std::ranges::find_if(slots_, [&, lane = lane, next = state.next](const Slot& slot) {
              return slot.batch == next && slot.pending.contains(lane);
            });
        if (ready == slots_.end()) break;
        const auto s = static_cast<std::uint32_t>(ready - slots_.begin());
        ready->pending.erase(lane);
        ready->leased.insert(lane);
        state.leases[s] = ring_.generation(s);
        ++state.next;
        ring_.grant(lane, s, 0);
        any = true;
      }
    return any;
  }

  RingWriter& ring_;
  std::vector<Slot> slots_;
  std::map<std::uint32_t, Lane> lanes_;
  std::vector<TakenAck> acks_;
  std::uint64_t batches_;
  std::size_t max_leases_;
  std::uint64_t next_fill_ = 0;
};

struct ReaderReport {
  std::uint64_t batches = 0;
  std::uint64_t errors = 0;
};

/// Reads `batches` batches; holds up to `max_leases`, and releases random ones. Verifies each batch when it
/// comes and before it is released.
inline ReaderReport read_all(RingReader& ring, std::uint64_t batches, std::size_t max_leases,
                             std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Grant> held;
  ReaderReport report;
  const auto release = [&](std::size_t i) {
    report.errors += wrong_words(ring, held[i]);
    ring.ack(held[i]);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
  };
  while (report.batches < batches) {
    const auto spin = random() % 2 == 0 ? 0ns : std::chrono::nanoseconds(20us);
    const auto grant = ring.next(0, 60s, spin, nullptr);
    if (!grant) {
      ++report.errors;
      break;
    }
    report.errors += grant->batch != report.batches || grant->epoch != 1 ? 1 : 0;
    report.errors += wrong_words(ring, *grant);
    ++report.batches;
    held.push_back(*grant);
    if (seed % 3 == 2 && random() % 16 == 0) ::usleep(static_cast<useconds_t>(random() % 500));
    while (held.size() >= max_leases || (!held.empty() && random() % 3 == 0)) release(random() % held.size());
  }
  while (!held.empty()) release(random() % held.size());
  return report;
}

}  // namespace headrace::ring::testing
