// The promises of each sampler, over many sizes and seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "server/sampler/by_class.h"
#include "server/sampler/order.h"
#include "server/sampler/weighted.h"

namespace headrace::server::sampler {
namespace {

using Samples = std::vector<std::uint64_t>;

Samples epoch_of(const SamplerPtr& sampler, std::uint64_t epoch) {
  const EpochOrder order = sampler->order(epoch);
  Samples out(sampler->size());
  for (std::uint64_t p = 0; p < out.size(); ++p) out[p] = order(p);
  return out;
}

/// Labels of `classes` classes, 1 to `most` samples each, mixed.
std::vector<std::int64_t> labels_of(std::uint64_t classes, std::uint64_t most, std::mt19937_64& rng) {
  std::vector<std::int64_t> out;
  for (std::uint64_t c = 0; c < classes; ++c)
    out.insert(out.end(), 1 + rng() % most, 3 * static_cast<int>(c));
  std::shuffle(out.begin(), out.end(), rng);
  return out;
}

/// The upper 1 in 100,000 of chi-square with that many degrees of freedom (Wilson and Hilferty 1931).
double chi_square_limit(double degrees) {
  const double z = 4.265, a = 2 / (9 * degrees);
  return degrees * std::pow(1 - a + z * std::sqrt(a), 3);
}

void expect_frequencies(const std::vector<double>& weights, const std::vector<std::uint64_t>& seen) {
  double sum = 0;
  std::uint64_t draws = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    draws += seen[i];
  }
  double chi = 0, degrees = -1;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) {
      EXPECT_EQ(seen[i], 0U) << "sample " << i << " weighs nothing";
      continue;
    }
    const double expected = static_cast<double>(draws) * weights[i] / sum;
    ASSERT_GT(expected, 5) << "too few draws to say anything";
    chi += (static_cast<double>(seen[i]) - expected) * (static_cast<double>(seen[i]) - expected) / expected;
    ++degrees;
  }
  EXPECT_LT(chi, chi_square_limit(degrees)) << weights.size() << " weights";
}

TEST(WeightedProperty, DrawsEachSampleAsOftenAsItWeighs) {
  std::mt19937_64 rng(1);
  for (const std::size_t n : {2, 3, 10, 257, 1000}) {
    std::vector<double> weights(n);
    for (double& weight : weights)
      weight = rng() % 5 == 0 ? 0 : 0.1 + static_cast<double>(rng() % 1000) / 100;
    weights[0] = 3;
    weights[1] = 1;
    const auto sampler = make_weighted(weights, 400'000, rng()).value();
    std::vector<std::uint64_t> seen(n);
    for (const std::uint64_t sample : epoch_of(sampler, 2)) ++seen[sample];
    expect_frequencies(weights, seen);
  }
}

TEST(WeightedProperty, DrawsAtOnePositionOverEpochsAsOftenAsEachWeighs) {
  const std::vector<double> weights{1, 2, 3, 0, 4};
  const auto sampler = make_weighted(weights, 10, 5).value();
  std::vector<std::uint64_t> seen(weights.size());
  for (std::uint64_t epoch = 0; epoch < 100'000; ++epoch) ++seen[sampler->order(epoch)(7)];
  expect_frequencies(weights, seen);
}

TEST(WeightedProperty, KeepsSharesExactOverManyOrdersOfMagnitude) {
  std::vector<double> weights(100'000, 1e-6);
  weights[77] = 1;  // of a sum of 1.1
  const auto sampler = make_weighted(weights, 200'000, 5).value();
  std::vector<std::uint64_t> seen(2);
  for (const std::uint64_t sample : epoch_of(sampler, 0)) ++seen[sample == 77 ? 0 : 1];
  expect_frequencies({1, 0.099999}, seen);
}

TEST(BalancedProperty, HasEachClassEquallyOftenInEveryAlignedWindow) {
  std::mt19937_64 rng(2);
  for (int i = 0; i < 60; ++i) {
    const auto labels = labels_of(1 + rng() % 12, 30, rng);
    const ClassIndex classes(labels);
    const std::uint64_t c = classes.size();
    const auto samples = epoch_of(make_balanced(classes, c * (1 + rng() % 100), rng()), rng() % 9);
    for (std::uint64_t from = 0; from < samples.size(); from += c) {
      std::set<std::int64_t> seen;
      for (std::uint64_t p = from; p < from + c; ++p) seen.insert(labels[samples[p]]);
      ASSERT_EQ(seen.size(), c) << "positions from " << from;
    }
  }
}

TEST(BalancedProperty, VisitsEachSampleOfAClassOnceBeforeAnyComesAgain) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 60; ++i) {
    const auto labels = labels_of(1 + rng() % 12, 30, rng);
    const ClassIndex classes(labels);
    std::map<std::int64_t, Samples> of_class;
    for (const std::uint64_t sample : epoch_of(make_balanced(classes, 100 * classes.size() + 3, rng()), 1))
      of_class[labels[sample]].push_back(sample);
    for (std::uint64_t c = 0; c < classes.size(); ++c) {
      const Samples& seen = of_class.at(classes.label(c));
      const std::uint64_t n = classes.members(c).size();
      for (std::uint64_t from = 0; from < seen.size(); from += n) {
        const auto first = seen.begin() + static_cast<std::ptrdiff_t>(from);
        const auto last = seen.begin() + static_cast<std::ptrdiff_t>(std::min(from + n, seen.size()));
        ASSERT_EQ(std::set<std::uint64_t>(first, last).size(), static_cast<std::size_t>(last - first));
      }
    }
  }
}

TEST(PkProperty, HasDistinctClassesAndDistinctSamplesInEveryGroup) {
  std::mt19937_64 rng(4);
  for (int i = 0; i < 100; ++i) {
    const auto labels = labels_of(1 + rng() % 15, 20, rng);
    const ClassIndex classes(labels);
    const PkOptions options{.classes = 1 + rng() % classes.size(), .samples = 1 + rng() % 6, .groups = 40};
    const auto samples = epoch_of(make_pk(classes, options, rng()), rng() % 5);
    ASSERT_EQ(samples.size(), 40 * options.classes * options.samples);
    for (auto at = samples.begin(); at != samples.end();) {
      std::set<std::int64_t> seen;
      for (std::uint64_t c = 0; c < options.classes; ++c) {
        std::map<std::uint64_t, std::uint64_t> times;
        for (std::uint64_t k = 0; k < options.samples; ++k, ++at) {
          ASSERT_EQ(labels[*at], labels[*(at - static_cast<std::ptrdiff_t>(k))]);
          ++times[*at];
        }
        seen.insert(labels[times.begin()->first]);
        const std::uint64_t n = classes.members(classes.class_of(times.begin()->first)).size();
        ASSERT_EQ(times.size(), std::min(n, options.samples));
        for (const auto& [sample, count] : times) ASSERT_LE(count, (options.samples + n - 1) / n);
      }
      ASSERT_EQ(seen.size(), options.classes);
    }
  }
}

TEST(PkProperty, VisitsEveryClassEquallyOftenWherePDividesThem) {
  std::mt19937_64 rng(5);
  const auto labels = labels_of(12, 20, rng);
  for (const std::uint64_t p : {1, 2, 3, 4, 6, 12}) {
    const auto samples =
        epoch_of(make_pk(ClassIndex(labels), {.classes = p, .samples = 2, .groups = 12 / p * 5}, rng()), 0);
    std::map<std::int64_t, int> seen;
    for (const std::uint64_t sample : samples) ++seen[labels[sample]];
    ASSERT_EQ(seen.size(), 12U);
    for (const auto& [label, times] : seen) ASSERT_EQ(times, 10) << "class " << label << ", p " << p;
  }
}

TEST(PkProperty, LeavesNoClassOutMoreOftenThanOthersWherePDoesNotDivideThem) {
  std::mt19937_64 rng(6);
  const auto labels = labels_of(7, 9, rng);
  const auto samples =
      epoch_of(make_pk(ClassIndex(labels), {.classes = 3, .samples = 1, .groups = 20'000}, 8), 0);
  std::vector<std::uint64_t> seen(7);
  for (std::size_t from = 0; from < samples.size(); from += 6) {  // two groups: no class twice
    std::set<std::int64_t> row;
    for (std::size_t i = from; i < from + 6; ++i) {
      row.insert(labels[samples[i]]);
      ++seen[static_cast<std::size_t>(labels[samples[i]] / 3)];
    }
    ASSERT_EQ(row.size(), 6U);
  }
  expect_frequencies(std::vector<double>(7, 1), seen);
}

/// One sampler of each kind, with some hundred positions.
std::vector<SamplerPtr> one_of_each() {
  std::mt19937_64 rng(7);
  const ClassIndex classes(labels_of(9, 25, rng));
  std::vector<double> weights(50);
  for (double& weight : weights) weight = static_cast<double>(rng() % 9);
  Samples list(300);
  for (std::uint64_t& sample : list) sample = rng() % 40;
  return {make_shuffled(333, 1), make_weighted(weights, 350, 1).value(), make_balanced(classes, 400, 1),
          make_pk(classes, {.classes = 4, .samples = 3, .groups = 32}, 1), make_listed(list, true, 1)};
}

TEST(SamplerProperty, GivesTheSameInAnyOrderAndFromAnyThread) {
  for (const SamplerPtr& sampler : one_of_each()) {
    const Samples expected = epoch_of(sampler, 3);
    std::vector<Samples> seen(4);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < seen.size(); ++t)
      threads.emplace_back([&, t] {
        Samples order(expected.size());
        for (std::uint64_t p = 0; p < order.size(); ++p) order[p] = p;
        std::shuffle(order.begin(), order.end(), std::mt19937_64(t));
        seen[t].resize(order.size());
        for (const std::uint64_t p : order) {
          (void)sampler->order(p)(p);  // another epoch in between
          seen[t][p] = sampler->order(3)(p);
        }
      });
    for (auto& thread : threads) thread.join();
    for (const Samples& one : seen) ASSERT_EQ(one, expected);
  }
}

TEST(SamplerProperty, DiffersBetweenEpochs) {
  for (const SamplerPtr& sampler : one_of_each()) {
    EXPECT_NE(epoch_of(sampler, 0), epoch_of(sampler, 1));
    EXPECT_NE(epoch_of(sampler, 1), epoch_of(sampler, std::uint64_t{1} << 40));
  }
}

TEST(SamplerProperty, GivesRanksTogetherWhatOneAloneGets) {
  for (const SamplerPtr& sampler : one_of_each()) {
    Samples whole = epoch_of(sampler, 2);
    std::sort(whole.begin(), whole.end());
    for (const std::uint32_t world : {1, 2, 4}) {
      const EpochPlan plan(sampler->size(), 12, world, LastBatch::kShort);
      const EpochOrder order = sampler->order(2);
      Samples seen;
      for (std::uint64_t batch = 0; batch < plan.length(0); ++batch)
        for (std::uint32_t rank = 0; rank < world; ++rank) {
          const BatchRows rows = plan.rows(0, batch, rank);
          for (std::uint64_t i = 0; i < rows.valid; ++i) seen.push_back(order(rows.first + i));
        }
      std::sort(seen.begin(), seen.end());
      ASSERT_EQ(seen, whole) << "world size " << world;
    }
  }
}

}  // namespace
}  // namespace headrace::server::sampler
