#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "server/sampler/order.h"

namespace headrace::server::sampler {
namespace {

struct Case {
  std::uint64_t n, origin;
  std::uint32_t batch, world;
};

Case random_case(std::mt19937_64& rng) {
  const std::uint64_t n = 1 + rng() % (rng() % 4 == 0 ? 12 : 700);
  return {n, rng() % 3 == 0 ? rng() % (n + 1) : 0,
          static_cast<std::uint32_t>(1 + rng() % (rng() % 2 ? 9 : 100)),
          static_cast<std::uint32_t>(1 + rng() % 9)};
}

std::string describe(const Case& c) {
  return "n " + std::to_string(c.n) + " origin " + std::to_string(c.origin) + " B " +
         std::to_string(c.batch) + " w " + std::to_string(c.world);
}

// Counts how often each position is a valid row in batches [0, batches), and how many rows are not valid.
// Checks on the way that all ranks agree on the row count and that no row is claimed valid past the end.
struct Seen {
  std::vector<int> times;
  std::uint64_t invalid = 0;
};

void visit(const Case& c, LastBatch last, std::uint64_t batches, Seen& seen) {
  const EpochPlan plan(c.n, c.batch, c.world, last);
  for (std::uint64_t k = 0; k < batches; ++k) {
    const auto rows = plan.rows(c.origin, k, 0).rows;
    ASSERT_GE(rows, 1U);
    ASSERT_LE(rows, c.batch);
    for (std::uint32_t r = 0; r < c.world; ++r) {
      const auto b = plan.rows(c.origin, k, r);
      ASSERT_EQ(b.rows, rows) << "ranks disagree, " << describe(c);
      ASSERT_LE(b.valid, b.rows);
      for (std::uint32_t i = 0; i < b.valid; ++i) {
        ASSERT_LT(b.first + i, c.n);
        ++seen.times.at(b.first + i);
      }
      for (std::uint32_t i = b.valid; i < b.rows; ++i) ASSERT_GE(b.first + i, c.n) << describe(c);
      seen.invalid += b.rows - b.valid;
    }
  }
}

constexpr int kCases = 4000;

TEST(EpochPlanProperty, ShortAndPadVisitEachRemainingSampleExactlyOnce) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < kCases; ++i) {
    const auto c = random_case(rng);
    for (const auto last : {LastBatch::kShort, LastBatch::kPad}) {
      Seen seen{std::vector<int>(c.n)};
      ASSERT_NO_FATAL_FAILURE(visit(c, last, EpochPlan(c.n, c.batch, c.world, last).length(c.origin), seen));
      for (std::uint64_t p = 0; p < c.n; ++p) ASSERT_EQ(seen.times[p], p >= c.origin) << describe(c);
      if (last == LastBatch::kShort) {
        ASSERT_LE(seen.invalid, c.world - 1) << describe(c);
      }
    }
  }
}

TEST(EpochPlanProperty, DropVisitsWholeGlobalBatchesAndNothingTwice) {
  std::mt19937_64 rng(2);
  for (int i = 0; i < kCases; ++i) {
    const auto c = random_case(rng);
    const EpochPlan plan(c.n, c.batch, c.world, LastBatch::kDrop);
    Seen seen{std::vector<int>(c.n)};
    ASSERT_NO_FATAL_FAILURE(visit(c, LastBatch::kDrop, plan.length(c.origin), seen));
    const std::uint64_t end = plan.consumed(c.origin, plan.length(c.origin));
    ASSERT_EQ(seen.invalid, 0U);
    ASSERT_LT(c.n - end, std::uint64_t{c.batch} * c.world) << describe(c);
    for (std::uint64_t p = 0; p < c.n; ++p) ASSERT_EQ(seen.times[p], p >= c.origin && p < end) << describe(c);
  }
}

TEST(EpochPlanProperty, ResumingAtOtherSizesVisitsEachRemainingSampleExactlyOnce) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < kCases; ++i) {
    auto c = random_case(rng);
    Seen seen{std::vector<int>(c.n)};
    const std::uint64_t begin = c.origin;
    for (int change = 0; change < 3; ++change) {  // two changes of sizes, then to the end
      const EpochPlan plan(c.n, c.batch, c.world, LastBatch::kShort);
      const std::uint64_t length = plan.length(c.origin);
      const std::uint64_t batches = change == 2 ? length : rng() % (length + 1);
      ASSERT_NO_FATAL_FAILURE(visit(c, LastBatch::kShort, batches, seen));
      c.origin = plan.consumed(c.origin, batches);
      const auto next = random_case(rng);
      c.batch = next.batch;
      c.world = next.world;
    }
    for (std::uint64_t p = 0; p < c.n; ++p) ASSERT_EQ(seen.times[p], p >= begin) << describe(c);
  }
}

TEST(EpochPlanProperty, ResumingAtTheSameSizesGivesTheSameRows) {
  std::mt19937_64 rng(4);
  for (int i = 0; i < kCases; ++i) {
    const auto c = random_case(rng);
    const EpochPlan plan(c.n, c.batch, c.world, LastBatch::kShort);
    const std::uint64_t length = plan.length(c.origin);
    if (length == 0) continue;
    const std::uint64_t at = rng() % length;
    const std::uint64_t origin = plan.consumed(c.origin, at);
    ASSERT_EQ(plan.length(origin), length - at) << describe(c);
    for (std::uint32_t r = 0; r < c.world; ++r) {
      const auto before = plan.rows(c.origin, at, r), after = plan.rows(origin, 0, r);
      ASSERT_EQ(before.first, after.first) << describe(c);
      ASSERT_EQ(before.rows, after.rows);
      ASSERT_EQ(before.valid, after.valid);
    }
  }
}

}  // namespace
}  // namespace headrace::server::sampler
