#include "server/sampler/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace headrace::server::sampler {
namespace {

std::vector<std::uint64_t> all(const Permutation& p, std::uint64_t n) {
  std::vector<std::uint64_t> out(n);
  for (std::uint64_t i = 0; i < n; ++i) out[i] = p(i);
  return out;
}

void expect_rows(const BatchRows& got, std::uint64_t first, std::uint32_t rows, std::uint32_t valid) {
  EXPECT_EQ(got.first, first);
  EXPECT_EQ(got.rows, rows);
  EXPECT_EQ(got.valid, valid);
}

TEST(Permutation, OfOneIsTheIdentity) {
  EXPECT_EQ(Permutation(1, 5, 5)(0), 0U);
}

TEST(Permutation, IsTheSameEveryTimeAndOnEveryMachine) {
  const auto now = all(Permutation(10, 42, 0), 10);
  EXPECT_EQ(now, all(Permutation(10, 42, 0), 10));
  EXPECT_EQ(now, (std::vector<std::uint64_t>{7, 5, 8, 2, 1, 3, 6, 9, 0, 4}));
}

TEST(Permutation, DiffersBetweenEpochsAndSeeds) {
  const auto a = all(Permutation(1000, 1, 0), 1000);
  EXPECT_NE(a, all(Permutation(1000, 1, 1), 1000));
  EXPECT_NE(a, all(Permutation(1000, 2, 0), 1000));
}

TEST(Permutation, CoversTheLargestDomain) {
  const std::uint64_t n = ~std::uint64_t{0};
  const Permutation p(n, 1, 2);
  EXPECT_LT(p(n - 1), n);
  EXPECT_NE(p(0), p(n - 1));
}

TEST(PermutationDeathTest, AbortsOnAPositionOutside) {
  EXPECT_DEATH((void)Permutation(10, 0, 0)(10), "outside of the permutation");
}

TEST(EpochPlan, CutsFullBatchesRankByRank) {
  const EpochPlan plan(16, 2, 4, LastBatch::kShort);
  EXPECT_EQ(plan.length(0), 2U);
  expect_rows(plan.rows(0, 0, 0), 0, 2, 2);
  expect_rows(plan.rows(0, 0, 3), 6, 2, 2);
  expect_rows(plan.rows(0, 1, 1), 10, 2, 2);
}

TEST(EpochPlan, ShortDividesTheRestEvenly) {
  const EpochPlan plan(21, 4, 4, LastBatch::kShort);  // 16 + 5: two rows each, three of them wrapped
  EXPECT_EQ(plan.length(0), 2U);
  expect_rows(plan.rows(0, 1, 0), 16, 2, 2);
  expect_rows(plan.rows(0, 1, 1), 18, 2, 2);
  expect_rows(plan.rows(0, 1, 2), 20, 2, 1);
  expect_rows(plan.rows(0, 1, 3), 22, 2, 0);
}

TEST(EpochPlan, PadFillsUpToWholeBatches) {
  const EpochPlan plan(21, 4, 4, LastBatch::kPad);
  EXPECT_EQ(plan.length(0), 2U);
  expect_rows(plan.rows(0, 1, 0), 16, 4, 4);
  expect_rows(plan.rows(0, 1, 1), 20, 4, 1);
  expect_rows(plan.rows(0, 1, 3), 28, 4, 0);
}

TEST(EpochPlan, DropLeavesTheRestOut) {
  EXPECT_EQ(EpochPlan(21, 4, 4, LastBatch::kDrop).length(0), 1U);
  EXPECT_EQ(EpochPlan(3, 4, 1, LastBatch::kDrop).length(0), 0U);
}

TEST(EpochPlan, BroadcastNeverPadsWithShort) {
  const EpochPlan plan(10, 4, 1, LastBatch::kShort);
  EXPECT_EQ(plan.length(0), 3U);
  expect_rows(plan.rows(0, 2, 0), 8, 2, 2);
}

TEST(EpochPlan, BeginsAtItsOrigin) {
  const EpochPlan plan(10, 4, 1, LastBatch::kShort);
  EXPECT_EQ(plan.length(7), 1U);
  expect_rows(plan.rows(7, 0, 0), 7, 3, 3);
  EXPECT_EQ(plan.length(10), 0U);
}

TEST(EpochPlan, ConsumedNeverPassesTheEnd) {
  const EpochPlan plan(21, 4, 4, LastBatch::kShort);
  EXPECT_EQ(plan.consumed(0, 0), 0U);
  EXPECT_EQ(plan.consumed(0, 1), 16U);
  EXPECT_EQ(plan.consumed(0, 2), 21U);
  EXPECT_EQ(plan.consumed(5, ~std::uint64_t{0}), 21U);
}

TEST(EpochPlanDeathTest, AbortsOnABatchPastTheEpoch) {
  EXPECT_DEATH((void)EpochPlan(10, 4, 1, LastBatch::kShort).rows(0, 3, 0), "outside of the epoch");
}

}  // namespace
}  // namespace headrace::server::sampler
