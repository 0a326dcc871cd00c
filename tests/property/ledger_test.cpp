// The ledger under random histories: lanes attach, detach, seek and are fenced; fills end and acks come in
// any order. After every step the invariants hold, every lane gets its batches in order and once, and no lane
// starves.
#include "server/publish/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "tests/property/simulated_lanes.h"

namespace headrace::server::publish {
namespace {

using sampler::EpochPlan;

Ledger::Options options_for(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto prefetch = static_cast<std::uint32_t>(random() % 5);
  return {.lanes = static_cast<std::uint32_t>(1 + random() % 5),
          .max_leases = static_cast<std::uint32_t>(1 + random() % 4),
          .prefetch = prefetch,
          .broadcast = random() % 2 == 0,
          .max_lag = static_cast<std::uint32_t>(random() % (prefetch + 1)),
          .detach = random() % 3 != 0};
}

TEST(Ledger, KeepsItsInvariantsAndOrderUnderRandomHistories) {
  std::uint64_t delivered = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Simulation run(options_for(seed), seed);
    const std::uint32_t lanes = run.ledger().options().lanes;
    for (int step = 0; step < 1500 && !HasFailure(); ++step) {
      const std::uint32_t lane = run.pick(lanes);
      const bool open = run.lane(lane).open;
      switch (run.pick(100)) {
        case 0:
          open ? run.close(lane) : run.open(lane, {run.pick(3), 0, run.pick(12)});
          break;
        case 1:
          if (open && !run.lane(lane).fenced) {
            // A random position, or a few batches before another lane's position: then batches exist that
            // other lanes wait for.
            Cursor to{run.pick(3), run.pick(37), run.pick(4)};
            const std::uint32_t other = run.pick(lanes);
            if (run.pick(4) != 0 && run.lane(other).open) to = run.lane(other).expected;
            to.batch -= std::min<std::uint64_t>(to.batch, run.pick(5));
            run.seek(lane, to);
          }
          break;
        case 2:
          if (open && run.pick(4) == 0) {
            run.ledger().fence(lane);
            run.lane(lane).fenced = true;
            run.settle();
          } else if (!open) {
            run.open(lane, {});
          }
          break;
        case 3:
          if (open && !run.lane(lane).fenced) run.reject(lane);
          break;
        default:
          if (run.pick(3) == 0)
            run.ack(lane, run.pick(2) == 0);
          else if (run.pick(2) == 0)
            run.start_fill(lane);
          else
            run.end_fill();
      }
    }
    delivered += run.delivered();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(delivered, 5000U) << "the histories delivered almost nothing, so the test checks nothing";
}

TEST(Ledger, FreesEverySlotOnceAllLanesAreClosed) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Simulation run(options_for(seed), seed);
    const std::uint32_t lanes = run.ledger().options().lanes;
    for (std::uint32_t i = 0; i < lanes; ++i) run.open(i, {});
    for (int step = 0; step < 300; ++step) {
      run.start_fill(run.pick(lanes));
      run.end_fill();
    }
    for (std::uint32_t i = 0; i < lanes; ++i) run.close(i);
    for (int step = 0; step < 300; ++step) run.end_fill();
    EXPECT_EQ(run.ledger().counts().free, Ledger::slots_needed(run.ledger().options())) << "seed " << seed;
  }
}

/// All lanes except lane 0 consume. Lane 0's leases must starve no other lane.
TEST(Ledger, StarvesNoLaneWhileAnotherLaneNeverAcks) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Ledger::Options options = options_for(seed);
    options.lanes = std::max(2U, options.lanes);
    options.detach = true;
    Simulation run(options, seed);
    for (std::uint32_t i = 0; i < options.lanes; ++i) run.open(i, {run.pick(2), 0, run.pick(8)});
    for (int round = 0; round < 400; ++round) {
      const std::uint32_t lane = run.pick(options.lanes);
      run.start_fill(lane);
      run.end_fill();
      if (lane != 0) run.ack(lane, true);  // lane 0 never acks
    }
    for (std::uint32_t i = 1; i < options.lanes; ++i)
      EXPECT_GT(run.lane(i).received, 20U)
          << "seed " << seed << ", lane " << i << " of " << options.lanes << ", max_leases "
          << options.max_leases << ", prefetch " << options.prefetch << ", max_lag " << options.max_lag
          << (options.broadcast ? ", broadcast" : ", shard");
    EXPECT_LE(run.lane(0).held.size(), options.max_leases);
  }
}

/// All free slots are being filled for batches that no lane wants any more. A lane below its reserve must
/// wait for these fills, and must not get a slot of another lane's reserve.
TEST(Ledger, DropsNoBatchOfALaneWithinItsReserve) {
  Ledger ledger({.lanes = 2, .max_leases = 3, .prefetch = 4, .broadcast = true, .max_lag = 4});
  const EpochPlan plan(400, 8, 1, LastBatch::kShort);
  ledger.provide(2);
  ledger.open(0, &plan, {});
  ledger.open(1, &plan, {});
  std::vector<std::uint32_t> unwanted;
  while (const auto fill = ledger.take_fill(0)) unwanted.push_back(fill->slot);
  ASSERT_EQ(unwanted.size(), 7U);
  ledger.seek(0, {0, 0, 20});
  ledger.seek(1, {1, 0, 20});
  std::vector<std::uint32_t> wanted;  // all of lane 1's reserve
  while (const auto fill = ledger.take_fill(1)) wanted.push_back(fill->slot);
  ASSERT_EQ(wanted.size(), 3U);
  EXPECT_TRUE(ledger.filled(wanted[1]));  // not its next batch: no lane leases it yet
  EXPECT_FALSE(ledger.take_fill(0)) << "entitled, but no slot is free";
  EXPECT_EQ(ledger.counts().ready, 1U) << "lane 1 lost a batch that was built for it";
  EXPECT_FALSE(ledger.filled(unwanted[0]));
  const auto fill = ledger.take_fill(0);
  ASSERT_TRUE(fill);
  EXPECT_EQ(fill->slot, unwanted[0]);
  ledger.check();
}

/// All lanes except one never ack. They begin at different batches.
TEST(Ledger, KeepsServingTheOnlyConsumingLaneWhileAllOthersNeverAck) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Ledger::Options options = options_for(seed);
    options.lanes = std::max(2U, options.lanes);
    options.detach = true;
    options.max_lag = static_cast<std::uint32_t>(seed % 12);
    Simulation run(options, seed);
    for (std::uint32_t i = 0; i < options.lanes; ++i) run.open(i, {0, 0, run.pick(10)});
    const std::uint32_t consuming = run.pick(options.lanes);
    for (int round = 0; round < 400; ++round) {
      while (run.start_fill()) {
      }
      run.end_fill();
      run.ack(consuming, true);
    }
    EXPECT_GT(run.lane(consuming).received, 20U)
        << "seed " << seed << ", lane " << consuming << " of " << options.lanes << ", max_leases "
        << options.max_leases << ", prefetch " << options.prefetch << ", max_lag " << options.max_lag
        << (options.broadcast ? ", broadcast" : ", shard");
  }
}

TEST(Ledger, SharesABatchAmongBroadcastLanesInStep) {
  Simulation run({.lanes = 3, .max_leases = 2, .prefetch = 4, .broadcast = true, .max_lag = 4}, 1);
  for (std::uint32_t i = 0; i < 3; ++i) run.open(i, {});
  int fills = 0;
  for (int round = 0; round < 100; ++round) {
    for (std::uint32_t i = 0; i < 3; ++i)
      while (auto fill = run.ledger().take_fill(i)) {
        ++fills;
        run.ledger().filled(fill->slot);
        run.grants();
      }
    for (std::uint32_t i = 0; i < 3; ++i) run.ack(i, true);
  }
  EXPECT_EQ(run.lane(0).received, run.lane(2).received);
  EXPECT_LE(fills, static_cast<int>(run.lane(0).received) + 6) << "each batch is built once for all three";
}

void serve_lane_0_while_lane_1_sleeps(Simulation& run) {
  run.open(0, {});
  run.open(1, {});
  for (int round = 0; round < 200; ++round) {
    run.start_fill(0);
    run.start_fill(1);
    run.end_fill();
    run.ack(0, true);
  }
}

TEST(Ledger, CutsALaggingLaneDownToItsReserveAndServesTheOthersAtFullDepth) {
  Simulation run(
      {.lanes = 2, .max_leases = 2, .prefetch = 4, .broadcast = true, .max_lag = 3, .detach = true}, 1);
  serve_lane_0_while_lane_1_sleeps(run);
  EXPECT_GT(run.lane(0).received, 50U);
  EXPECT_EQ(run.lane(1).held.size(), 2U);
  EXPECT_GE(run.ledger().detachments(), 1U);
  run.ack(1, true);  // lane 1 wakes up and continues at its position
  for (int round = 0; round < 50; ++round) {
    run.start_fill(1);
    run.end_fill();
    run.ack(1, true);
  }
  EXPECT_GT(run.lane(1).received, 5U);
}

TEST(Ledger, MakesTheForemostLaneWaitWithoutDetach) {
  Simulation run(
      {.lanes = 2, .max_leases = 2, .prefetch = 4, .broadcast = true, .max_lag = 4, .detach = false}, 1);
  serve_lane_0_while_lane_1_sleeps(run);
  EXPECT_LE(run.lane(0).received, 2 + 4 + 2U) << "lane 1 holds 2 and waits for the rest";
  const std::uint64_t before = run.lane(0).received;
  for (int round = 0; round < 50; ++round) {
    run.ack(1, true);
    run.start_fill(0);
    run.start_fill(1);
    run.end_fill();
    run.ack(0, true);
  }
  EXPECT_GT(run.lane(0).received, before + 20);
}

TEST(Ledger, MeasuresLagByPositionAcrossOrigins) {
  const EpochPlan plan(800, 8, 1, LastBatch::kShort);
  for (const bool detach : {false, true}) {
    Ledger ledger(
        {.lanes = 2, .max_leases = 2, .prefetch = 4, .broadcast = true, .max_lag = 4, .detach = detach});
    ledger.provide(2);
    ledger.open(0, &plan, {0, 400, 0});  // resumed at another batch size
    ledger.open(1, &plan, {0, 0, 49});   // 8 samples behind
    EXPECT_LT(ledger.position(1), ledger.position(0));
    EXPECT_EQ(ledger.lag(0, 1000), 0U);
    EXPECT_EQ(ledger.lag(1, 1000), 1U);
    for (const std::uint32_t lane : {0U, 1U})
      EXPECT_TRUE(ledger.take_fill(lane).has_value()) << "lane " << lane << " must not wait";
    EXPECT_EQ(ledger.detachments(), 0U);
  }
}

TEST(Ledger, GrantsABatchAgainAfterASeekBackDuringItsFirstLease) {
  Simulation run({.lanes = 1, .max_leases = 2, .prefetch = 2, .broadcast = true, .max_lag = 2}, 1);
  run.open(0, {});
  run.start_fill(0);
  run.end_fill();
  ASSERT_EQ(run.lane(0).held.size(), 1U);
  run.seek(0, {});
  for (int round = 0; round < 4; ++round) {
    run.start_fill(0);
    run.end_fill();
  }
  EXPECT_EQ(run.lane(0).held.size(), 2U)
      << "the view from before the seek holds its slot, so batch 0 comes in another one";
}

TEST(Ledger, HasSlotsForAsManyLanesAsWereOpenAtOnce) {
  for (const bool broadcast : {true, false}) {
    const Ledger::Options options{.lanes = 4, .max_leases = 2, .prefetch = 3, .broadcast = broadcast};
    Simulation run(options, 1);
    const auto free = [&] { return run.ledger().counts().free; };
    EXPECT_EQ(free(), Ledger::slots_needed(options, 1));
    run.open(2, {});
    EXPECT_EQ(free(), Ledger::slots_needed(options, 1));
    while (run.start_fill(2)) run.end_fill();
    EXPECT_EQ(run.ledger().counts().free, 0U) << "one lane uses all slots that there are";
    run.open(0, {7, 0, 0});
    EXPECT_EQ(free(), broadcast ? 2U : 5U) << "the new lane's reserve is free";
    run.close(2);
    EXPECT_EQ(free(), Ledger::slots_needed(options, 2));
    run.open(1, {});
    EXPECT_EQ(free(), Ledger::slots_needed(options, 2)) << "the slots of the lane that closed";
  }
}

TEST(Ledger, RefusesAcksOfWhatIsNotLeased) {
  Simulation run({.lanes = 2, .max_leases = 2, .prefetch = 2}, 1);
  run.open(0, {});
  run.open(1, {5, 0, 0});
  run.start_fill(0);
  run.end_fill();
  ASSERT_EQ(run.lane(0).held.size(), 1U);
  EXPECT_FALSE(run.ledger().ack(1, run.lane(0).held[0]));
  EXPECT_FALSE(run.ledger().ack(0, 9999));
  run.ack(0, true);
  EXPECT_FALSE(run.ledger().ack(0, 0));
}

}  // namespace
}  // namespace headrace::server::publish
