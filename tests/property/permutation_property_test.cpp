#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "server/sampler/order.h"
#include "tests/every_target.h"

namespace headrace::server::sampler {
namespace {

void expect_bijection(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation p(n, seed, epoch);
  std::vector<bool> hit(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto v = p(i);
    ASSERT_LT(v, n);
    ASSERT_FALSE(hit[v]) << "n " << n << ": " << v << " twice";
    hit[v] = true;
  }
}

// Upper 0.1% point of chi-square (Wilson & Hilferty 1931).
double chi_limit(double degrees) {
  const double t = 1 - 2 / (9 * degrees) + 3.09 * std::sqrt(2 / (9 * degrees));
  return degrees * t * t * t;
}

TEST(PermutationProperty, VisitsEachIndexOnceForEverySmallN) {
  for (std::uint64_t n = 1; n <= 2000; ++n) ASSERT_NO_FATAL_FAILURE(expect_bijection(n, n * 31, n % 5));
}

TEST(PermutationProperty, VisitsEachIndexOnceForAMillion) {
  for (const std::uint64_t n : {1'000'000ULL, 1'048'576ULL, 1'048'577ULL})
    ASSERT_NO_FATAL_FAILURE(expect_bijection(n, 3, 9));
}

TEST(PermutationProperty, MapsNoTwoPositionsOfAHugeDomainToOne) {
  const std::uint64_t n = 1'000'000'000'007;
  const Permutation p(n, 1, 1);
  std::vector<std::uint64_t> seen(200'000);
  for (std::uint64_t i = 0; i < seen.size(); ++i) seen[i] = p(i * 5'000'000);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  EXPECT_LT(seen.back(), n);
}

TEST(PermutationProperty, IsTheSameOfManyPositionsAtOnceOnEveryInstructionSet) {
  testing::on_every_target([] {
    for (const std::uint64_t n :
         {1ULL, 2ULL, 3ULL, 5ULL, 17ULL, 1000ULL, 60'000ULL, 65'537ULL, (1ULL << 32) + 1, ~0ULL})
      for (const std::size_t count : {0U, 1U, 3U, 8U, 9U, 300U}) {
        const Permutation p(n, n + 7, count);
        std::vector<std::uint64_t> positions(count), expected;
        for (std::size_t i = 0; i < count; ++i) {
          positions[i] = (i * 0x9E3779B97F4A7C15) % n;
          expected.push_back(p(positions[i]));
        }
        p.apply(positions);
        ASSERT_EQ(positions, expected) << n;
      }
  });
}

// For each position of a small domain: over many epochs, every value comes equally often.
TEST(PermutationProperty, GivesEveryPositionEveryValueEquallyOften) {
  constexpr int epochs = 20'000;
  int above = 0, tests = 0;
  for (const std::uint64_t n : {2ULL, 3ULL, 4ULL, 5ULL, 7ULL, 10ULL, 16ULL, 17ULL, 64ULL, 100ULL}) {
    std::vector<std::vector<int>> counts(n, std::vector<int>(n));
    for (int e = 0; e < epochs; ++e) {
      const Permutation p(n, 77, static_cast<std::uint64_t>(e));
      for (std::uint64_t i = 0; i < n; ++i) ++counts[i][p(i)];
    }
    const double expected = epochs / static_cast<double>(n);
    for (std::uint64_t i = 0; i < n; ++i, ++tests) {
      double chi = 0;
      for (const int c : counts[i]) chi += (c - expected) * (c - expected) / expected;
      above += chi > chi_limit(static_cast<double>(n - 1));
      EXPECT_LT(chi, 2 * chi_limit(static_cast<double>(n - 1))) << "n " << n << " position " << i;
    }
  }
  EXPECT_LE(above, 4) << "of " << tests << "; 0.1% were expected";
}

// Neighbors must not stay neighbors: the pair (p(0), p(1)) of n = 6 takes all 30 values equally often.
TEST(PermutationProperty, GivesEveryPairEquallyOften) {
  constexpr int epochs = 60'000;
  std::vector<int> counts(36);
  for (int e = 0; e < epochs; ++e) {
    const Permutation p(6, 5, static_cast<std::uint64_t>(e));
    ++counts[p(0) * 6 + p(1)];
  }
  double chi = 0;
  for (std::size_t i = 0; i < 36; ++i) {
    if (i % 7 == 0) {
      EXPECT_EQ(counts[i], 0);
      continue;
    }
    chi += (counts[i] - epochs / 30.0) * (counts[i] - epochs / 30.0) / (epochs / 30.0);
  }
  EXPECT_LT(chi, 1.5 * chi_limit(29));
}

// A shuffled epoch of 10^5: rank correlation between position and value is that of chance.
TEST(PermutationProperty, KeepsNoTrendBetweenPositionAndValue) {
  constexpr std::uint64_t n = 100'000;
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    const Permutation p(n, 123, epoch);
    double sum = 0;
    const double mean = (n - 1) / 2.0;
    for (std::uint64_t i = 0; i < n; ++i)
      sum += (static_cast<double>(i) - mean) * (static_cast<double>(p(i)) - mean);
    const double correlation = sum / (n * (static_cast<double>(n) * n - 1) / 12);
    EXPECT_LT(std::abs(correlation), 4 / std::sqrt(static_cast<double>(n)));
  }
}

}  // namespace
}  // namespace headrace::server::sampler
