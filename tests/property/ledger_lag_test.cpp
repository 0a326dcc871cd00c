// How the ledger counts clients that fall behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "server/publish/fill_order.h"
#include "server/publish/ledger.h"
#include "server/publish/position.h"

namespace headrace::server::publish {
namespace {

/// Simulates two clients and a worker. In each tick the worker makes two batches. Each client releases a
/// batch after its own number of ticks.
class Race {
 public:
  Race(std::uint64_t first_period, std::uint64_t second_period, std::uint64_t rows = 80'000)
      : periods_{first_period, second_period}, plan_{rows, 8, 1, LastBatch::kShort} {
    ledger_.provide(2);
  }
  void open(std::uint32_t lane, std::uint64_t batch = 0) { open(lane, {0, 0, batch}); }
  void open(std::uint32_t lane, const Cursor& at) { ledger_.open(lane, &plan_, at); }
  void run(std::uint64_t ticks) {
    for (const std::uint64_t end = tick_ + ticks; tick_ < end; ++tick_) {
      for (std::uint32_t lane = 0; lane < 2; ++lane) {
        if (held_[lane].empty() || tick_ % periods_[lane] != lane * periods_[lane] / 2) continue;
        ledger_.ack(lane, held_[lane].front());
        held_[lane].pop_front();
      }
      for (int round = 0; round < 2; ++round) {
        std::vector<std::uint32_t> freed;
        ledger_.take_freed(freed);
        for (const std::uint32_t lane : order_.lanes(0)) {
          const auto fill = ledger_.take_fill(lane);
          if (!fill) continue;
          order_.count(lane, 8);
          ledger_.filled(fill->slot);
          break;
        }
        std::vector<Ledger::Order> grants;
        ledger_.take_grants(grants);
        for (const Ledger::Order& grant : grants) held_[grant.lane].push_back(grant.slot);
      }
      ledger_.check();
    }
  }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }

 private:
  const std::array<std::uint64_t, 2> periods_;
  const sampler::EpochPlan plan_;
  Ledger ledger_{{.lanes = 2, .max_leases = 3, .prefetch = 4, .max_lag = 4}};
  FillOrder order_{ledger_, {.epoch_rows = 80'000}};
  std::array<std::deque<std::uint32_t>, 2> held_;
  std::uint64_t tick_ = 0;
};

TEST(Ledger, CountsAnOvertakingOnce) {
  Race race(20, 7);
  race.open(0);
  race.run(1000);
  race.open(1);
  race.run(2000);
  EXPECT_GT(race.ledger().position(1), race.ledger().position(0));
  EXPECT_GT(race.ledger().lag(0, 1000), 20U);
  EXPECT_EQ(race.ledger().detachments(), 2U) << "one of the late start, one of the client that was overtaken";
}

TEST(Ledger, IsNotConfusedByAClientAtABatchTooFarToCount) {
  constexpr std::uint64_t kLength = 80'073, kNever = 1'000'000;
  const sampler::EpochPlan plan{8 * kLength, 8, 1, LastBatch::kShort};
  for (const std::uint64_t beyond : {0, 1, 2, 3, 6}) {
    // In 64 bits, this batch is only `beyond` batches after the first one.
    const std::uint64_t epoch = ~std::uint64_t{0} / kLength;
    const std::uint64_t rest = ~std::uint64_t{0} - epoch * kLength + 1 + beyond;
    const Cursor far{epoch + rest / kLength, 0, rest % kLength};
    ASSERT_LT(far.epoch, std::uint64_t{1} << 48) << "a request may have it";
    EXPECT_EQ(steps(plan, {0, 0, 0}, far), std::nullopt);
    Race race(1, kNever, 8 * kLength);
    race.open(0);
    race.open(1, far);
    race.run(1000);
    EXPECT_GT(race.ledger().position(0).position, 8U * 900) << beyond;
  }
}

TEST(Ledger, CountsAClientThatStaysNearMaxLagOnce) {
  Race race(20, 20);
  race.open(0, 8);
  race.run(1);
  race.open(1, 3);
  race.run(3000);
  EXPECT_EQ(race.ledger().lag(1, 1000), 5U);
  EXPECT_EQ(race.ledger().detachments(), 1U);
}

}  // namespace
}  // namespace headrace::server::publish
