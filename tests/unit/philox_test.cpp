#include "server/sampler/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace headrace::server::sampler {
namespace {

using Block = std::array<std::uint32_t, 4>;

// kat_vectors of the Random123 distribution, philox4x32 10.
TEST(Philox, EqualsThePapersKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The draws are part of every stream's identity: a change here changes what a checkpoint resumes to.
TEST(Draws, NeverChange) {
  Draws draws(7, 3, 1000, 2);
  const std::vector<std::uint32_t> seen{draws.next_u32(), draws.next_u32(), draws.next_u32(),
                                        draws.next_u32(), draws.next_u32()};
  const auto sub = philox4x32({3, 0, 2, 0}, {7, 0});
  const auto first = philox4x32({1000, 0, 0, sub[2]}, {sub[0], sub[1]});
  const auto second = philox4x32({1000, 0, 1, sub[2]}, {sub[0], sub[1]});
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{first[0], first[1], first[2], first[3], second[0]}));
}

TEST(Draws, DifferInEachPartOfTheKey) {
  std::set<std::uint64_t> seen;
  const auto add = [&](Draws d) { seen.insert(std::uint64_t{d.next_u32()} << 32 | d.next_u32()); };
  add({1, 2, 3, 4});
  add({9, 2, 3, 4});
  add({1, 9, 3, 4});
  add({1, 2, 9, 4});
  add({1, 2, 3, 9});
  add({std::uint64_t{1} << 40 | 1, 2, 3, 4});
  add({1, std::uint64_t{1} << 40 | 2, 3, 4});
  add({1, 2, std::uint64_t{1} << 40 | 3, 4});
  EXPECT_EQ(seen.size(), 8U);
}

TEST(Draws, UniformStaysBelowOneAndFillsTheInterval) {
  double sum = 0, smallest = 1, largest = 0;
  constexpr int n = 100'000;
  for (int i = 0; i < n; ++i) {
    const double u = Draws(1, 0, static_cast<std::uint64_t>(i), 0).uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    smallest = std::min(smallest, u);
    largest = std::max(largest, u);
  }
  EXPECT_NEAR(sum / n, 0.5, 0.005);
  EXPECT_LT(smallest, 0.001);
  EXPECT_GT(largest, 0.999);
}

TEST(Draws, UniformOfARangeStaysInside) {
  Draws draws(5, 0, 0, 0);
  for (int i = 0; i < 1000; ++i) {
    const double u = draws.uniform(-2, 3);
    ASSERT_GE(u, -2);
    ASSERT_LT(u, 3);
  }
}

TEST(Draws, BelowIsUniformForABoundThatDoesNotDivideThePowerOfTwo) {
  constexpr std::uint32_t bound = 7;
  constexpr int n = 70'000;
  std::array<int, bound> counts{};
  Draws draws(11, 0, 0, 0);
  for (int i = 0; i < n; ++i) ++counts.at(draws.below(bound));
  double chi = 0;
  for (const int c : counts) chi += (c - n / 7.0) * (c - n / 7.0) / (n / 7.0);
  EXPECT_LT(chi, 22.46);  // 6 degrees of freedom, p = 0.001
}

TEST(Draws, BelowRejectsWhatWouldBiasAHugeBound) {
  constexpr std::uint32_t bound = 0xC0000000;  // a quarter of all draws must be thrown away
  int lower_third = 0;
  constexpr int n = 30'000;
  Draws draws(13, 0, 0, 0);
  for (int i = 0; i < n; ++i) {
    const auto v = draws.below(bound);
    ASSERT_LT(v, bound);
    lower_third += v < bound / 3;
  }
  EXPECT_NEAR(lower_third / double{n}, 1 / 3.0, 0.02);
}

TEST(Draws, BelowOneIsAlwaysZero) {
  Draws draws(1, 1, 1, 1);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(draws.below(1), 0U);
}

}  // namespace
}  // namespace headrace::server::sampler
