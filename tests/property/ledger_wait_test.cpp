// on_lag: wait. A client waits for one that is behind, but for no other.
#include <gtest/gtest.h>

#include <vector>

#include "server/publish/ledger.h"

namespace headrace::server::publish {
namespace {

/// Fills what can be filled for a lane, grants, and releases all but the last `hold` leases.
void serve(Ledger& ledger, std::uint32_t lane, int batches) {
  std::vector<std::uint32_t> freed, held;
  for (int i = 0; i < batches; ++i) {
    while (const auto fill = ledger.take_fill(lane)) ledger.filled(fill->slot);
    std::vector<Ledger::Order> grants;
    ledger.take_grants(grants);
    for (const Ledger::Order& grant : grants)
      if (grant.lane == lane) held.push_back(grant.slot);
    if (i + 1 < batches) {
      ledger.ack(lane, held.back());
      held.pop_back();
    }
    ledger.take_freed(freed);
    ledger.check();
  }
}

/// Two clients pause. The third one begins behind one of them: its reserve is in batches that it needs later,
/// and all other slots are the paused clients'.
TEST(Ledger, ServesALaneBehindAPausedOneWithoutDetach) {
  Ledger ledger(
      {.lanes = 3, .max_leases = 1, .prefetch = 5, .broadcast = true, .max_lag = 5, .detach = false});
  const sampler::EpochPlan plan(46, 8, 1, LastBatch::kShort);  // 6 batches
  ledger.provide(3);
  ledger.open(0, &plan, {2, 0, 0});
  serve(ledger, 0, 4);
  while (const auto fill = ledger.take_fill(0)) ledger.filled(fill->slot);
  ledger.open(1, &plan, {1, 0, 2});
  serve(ledger, 1, 1);
  ledger.open(2, &plan, {2, 0, 0});
  while (const auto fill = ledger.take_fill(1)) ledger.filled(fill->slot);
  ASSERT_EQ(ledger.counts().free, 0U);
  std::vector<std::uint32_t> freed;
  auto fill = ledger.take_fill(2);
  for (int i = 0; i < 8 && !fill; ++i) {
    ledger.take_freed(freed);
    fill = ledger.take_fill(2);
  }
  ASSERT_TRUE(fill) << "it waits for clients that are not behind";
  EXPECT_EQ(fill->key.cursor, (Cursor{2, 0, 0}));
  ledger.check();
}

}  // namespace
}  // namespace headrace::server::publish
