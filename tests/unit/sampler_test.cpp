// Samplers: errors, smallest cases, replacements, and values that must never change.
#include "server/sampler/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "server/sampler/alias_table.h"
#include "server/sampler/by_class.h"
#include "server/sampler/weighted.h"

namespace headrace::server::sampler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::uint64_t> epoch_of(const SamplerPtr& sampler, std::uint64_t epoch) {
  const EpochOrder order = sampler->order(epoch);
  std::vector<std::uint64_t> out;
  for (std::uint64_t p = 0; p < sampler->size(); ++p) out.push_back(order(p));
  return out;
}

Error refused(const std::vector<double>& weights) {
  const auto table = AliasTable::make(weights);
  EXPECT_FALSE(table);
  return table ? Error{} : table.error();
}

TEST(AliasTable, RefusesWhatCannotBeAWeight) {
  EXPECT_EQ(refused({}).code, ErrorCode::kConfigInvalid);
  EXPECT_THAT(refused({1, -2}).message, HasSubstr("the weight of sample 1 is negative: -2"));
  EXPECT_THAT(refused({std::nan("")}).message, HasSubstr("the weight of sample 0 is not a number"));
  EXPECT_THAT(refused({1, 1, std::numeric_limits<double>::infinity()}).message,
              HasSubstr("the weight of sample 2 is infinite"));
  EXPECT_THAT(refused({0, 0, -0.0}).message, HasSubstr("the weights of all 3 samples sum to zero"));
}

TEST(AliasTable, DrawsNothingOfWeightZeroAndNothingElseOfOneWeight) {
  const auto table = AliasTable::make(std::vector<double>{0, 5, 0, 0}).value();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Draws draws(1, 2, i, 3);
    EXPECT_EQ(table.draw(draws), 1U);
  }
}

TEST(AliasTable, TakesTheLargestAndTheSmallestNumbers) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const auto table = AliasTable::make(std::vector<double>{kMost, 5e-324, kMost, kMost}).value();
  int seen[4] = {};
  for (std::uint64_t i = 0; i < 3000; ++i) {
    Draws draws(1, 2, i, 3);
    ++seen[table.draw(draws)];
  }
  EXPECT_EQ(seen[1], 0);
  for (const int one : {0, 2, 3}) EXPECT_GT(seen[one], 900);
  Draws draws(1, 2, 3, 4);
  EXPECT_EQ(AliasTable::make(std::vector<double>{5e-324}).value().draw(draws), 0U);
}

TEST(Sampler, OfAWholeSourceIsTheIdentityOrThePermutation) {
  EXPECT_THAT(epoch_of(make_sequential(4), 7), ElementsAre(0, 1, 2, 3));
  const Permutation permutation(100, 5, 7);
  const auto shuffled = epoch_of(make_shuffled(100, 5), 7);
  for (std::uint64_t p = 0; p < 100; ++p) EXPECT_EQ(shuffled[p], permutation(p));
}

TEST(Sampler, OfAListKeepsRepeatsAndOrder) {
  EXPECT_THAT(epoch_of(make_listed({3, 1, 3, 0}, false, 5), 9), ElementsAre(3, 1, 3, 0));
  EXPECT_THAT(epoch_of(make_listed({3, 1, 3, 0}, true, 5), 9), testing::UnorderedElementsAre(3, 1, 3, 0));
  EXPECT_EQ(make_listed({3, 1, 3, 0}, false, 5)->reach(), 3U);
}

// Recorded values: if they change, the algorithm has changed, and kAlgorithmVersion must be raised.
TEST(Sampler, GivesTheSameSamplesForEver) {
  const std::vector<double> weights{1, 2, 0, 4, 0.5};
  const ClassIndex classes(std::vector<std::int64_t>{0, 2, 0, 2, 2, 0, 5});
  const auto weighted = epoch_of(make_weighted(weights, 12, 42).value(), 3);
  const auto balanced = epoch_of(make_balanced(classes, 12, 42), 3);
  const auto pk = epoch_of(make_pk(classes, {.classes = 2, .samples = 2, .groups = 3}, 42), 3);
  EXPECT_THAT(weighted, ElementsAre(3, 1, 0, 0, 3, 0, 3, 1, 1, 4, 1, 0));
  EXPECT_THAT(balanced, ElementsAre(3, 6, 0, 6, 1, 2, 4, 6, 5, 6, 5, 3));
  EXPECT_THAT(pk, ElementsAre(3, 1, 6, 6, 6, 6, 3, 4, 3, 1, 6, 6));
}

TEST(Sampler, ByClassOfOneClassOrOneSampleIsASampler) {
  const ClassIndex one(std::vector<std::int64_t>{7});
  EXPECT_THAT(epoch_of(make_balanced(one, 3, 1), 0), ElementsAre(0, 0, 0));
  EXPECT_THAT(epoch_of(make_pk(one, {.classes = 1, .samples = 3, .groups = 1}, 1), 0), ElementsAre(0, 0, 0));
}

TEST(ClassIndex, LeavesOutClassesWithoutSamplesAndKeepsTheOrder) {
  const ClassIndex classes(std::vector<std::int64_t>{9, -1, 9, 4});
  ASSERT_EQ(classes.size(), 3U);
  EXPECT_EQ(classes.label(0), -1);
  EXPECT_EQ(classes.label(2), 9);
  EXPECT_THAT(classes.members(2), ElementsAre(0, 2));
  EXPECT_EQ(classes.class_of(3), 1U);
}

TEST(Sampler, SubstitutesKeepThePromise) {
  const ClassIndex classes(std::vector<std::int64_t>{0, 1, 0, 1, 0});
  const auto balanced = make_balanced(classes, 10, 1);
  const auto pk = make_pk(classes, {.classes = 2, .samples = 2, .groups = 1}, 1);
  const auto weighted = make_weighted(std::vector<double>{0, 1, 1, 0}, 10, 1).value();
  const auto listed = make_listed({4, 8}, true, 1);
  for (std::uint64_t i = 0; i < 200; ++i) {
    Draws draws(3, 0, i, 9);
    EXPECT_EQ(balanced->substitute(1, draws) % 2, 1U);
    EXPECT_EQ(pk->substitute(2, draws) % 2, 0U);
    EXPECT_THAT(weighted->substitute(1, draws), testing::AnyOf(1, 2));
    EXPECT_THAT(listed->substitute(4, draws), testing::AnyOf(4, 8));
    EXPECT_LT(make_shuffled(3, 1)->substitute(0, draws), 3U);
  }
}

TEST(Sampler, SaysWhatItHoldsAndHowFarItReaches) {
  const auto weighted = [](std::vector<double> weights) { return make_weighted(weights, 5, 1).value(); };
  EXPECT_EQ(weighted({1, 0, 2})->reach(), 2U);
  EXPECT_EQ(weighted({1, 0, 2})->content(), weighted({1, 0, 2})->content());
  EXPECT_NE(weighted({1, 0, 2})->content(), weighted({1, 0, 3})->content());
  EXPECT_NE(make_listed({1, 2}, false, 1)->content(), make_listed({2, 1}, false, 1)->content());
  EXPECT_EQ(make_shuffled(9, 1)->reach(), 9U);
}

}  // namespace
}  // namespace headrace::server::sampler
