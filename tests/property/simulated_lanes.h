// A ledger with lanes that use it as clients do, one step after the other. Each step checks the ledger's
// invariants, and that lanes get their batches in order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

#include "server/publish/ledger.h"

namespace headrace::server::publish {

struct SimulatedLane {
  bool open = false, fenced = false;
  Cursor expected;
  std::uint32_t seek = 0;
  std::deque<std::uint32_t> held;  // slots
  std::uint64_t received = 0;
};

class Simulation {
 public:
  Simulation(const Ledger::Options& options, std::uint64_t seed)
      : ledger_(options),
        plan_(37, 4, options.broadcast ? 1 : 2, LastBatch::kShort),
        lanes_(options.lanes),
        random_(seed) {}

  Ledger& ledger() { return ledger_; }
  SimulatedLane& lane(std::uint32_t i) { return lanes_[i]; }
  [[nodiscard]] std::uint64_t delivered() const { return delivered_; }
  std::uint32_t pick(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

  void open(std::uint32_t i, Cursor at) {
    // As the server does: a ring has slots for no more lanes than were open at once.
    ledger_.provide(1 + static_cast<std::uint32_t>(std::ranges::count_if(
                            lanes_, [](const SimulatedLane& lane) { return lane.open; })));
    ledger_.open(i, &plan_, at);
    lanes_[i] =
        SimulatedLane{.open = true, .expected = normalized(plan_, at), .seek = ledger_.seek_number(i)};
  }
  void close(std::uint32_t i) {
    EXPECT_EQ(ledger_.close(i), lanes_[i].held.size());
    lanes_[i] = SimulatedLane{};
    settle();
  }
  void seek(std::uint32_t i, Cursor at) {
    lanes_[i].seek = ledger_.seek(i, at);
    lanes_[i].expected = normalized(plan_, at);
    settle();
  }
  /// A slot that the lane holds is damaged: the lane wants its batch again, and holds the slot until then.
  void reject(std::uint32_t i) {
    if (lanes_[i].held.empty()) return;
    const std::uint32_t slot = lanes_[i].held[pick(static_cast<std::uint32_t>(lanes_[i].held.size()))];
    EXPECT_TRUE(ledger_.has_lease(i, slot));
    if (ledger_.condemned(slot)) return;
    const Cursor batch = ledger_.batch(slot);
    ledger_.condemn(slot);
    settle();
    seek(i, batch);
  }
  bool start_fill(std::uint32_t i) {
    const auto fill = ledger_.take_fill(i);
    settle();
    if (fill) filling_.push_back(fill->slot);
    grants();  // it may have joined a batch that is ready
    return fill.has_value();
  }
  /// Starts one fill, as a stream does: for the lane with the fewest batches ahead that can have one.
  bool start_fill() {
    std::vector<std::uint32_t> order(lanes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
      return ledger_.ahead(a) < ledger_.ahead(b);
    });
    for (const std::uint32_t i : order)
      if (start_fill(i)) return true;
    return false;
  }
  void end_fill() {
    if (filling_.empty()) return;
    const std::uint32_t which = pick(static_cast<std::uint32_t>(filling_.size()));
    ledger_.filled(filling_[which]);
    filling_.erase(filling_.begin() + which);
    settle();
    grants();
  }
  void grants() {
    std::vector<Ledger::Order> orders;
    std::vector<Cursor> before;
    for (std::uint32_t i = 0; i < lanes_.size(); ++i)
      before.push_back(lanes_[i].open ? ledger_.next(i) : Cursor{});
    ledger_.take_grants(orders);
    for (const auto& order : orders) {
      SimulatedLane& to = lanes_[order.lane];
      ASSERT_TRUE(to.open && !to.fenced) << "a grant to a lane that is closed or fenced";
      EXPECT_EQ(order.seek, to.seek);
      EXPECT_EQ(before[order.lane], to.expected) << "out of order";
      before[order.lane] = to.expected = advance(plan_, to.expected);
      to.held.push_back(order.slot);
      ++to.received;
      ++delivered_;
    }
    settle();
  }
  void ack(std::uint32_t i, bool oldest) {
    auto& held = lanes_[i].held;
    if (held.empty()) return;
    const std::uint32_t which = oldest ? 0 : pick(static_cast<std::uint32_t>(held.size()));
    EXPECT_TRUE(ledger_.ack(i, held[which]));
    held.erase(held.begin() + which);
    settle();
    grants();
  }
  /// Collects the freed slots, as the publisher does after each change (there is no ring here). Checks the
  /// invariants.
  void settle() {
    std::vector<std::uint32_t> freed;
    ledger_.take_freed(freed);
    ledger_.check();
  }

 private:
  Ledger ledger_;
  sampler::EpochPlan plan_;
  std::vector<SimulatedLane> lanes_;
  std::vector<std::uint32_t> filling_;
  std::mt19937_64 random_;
  std::uint64_t delivered_ = 0;
};

}  // namespace headrace::server::publish
