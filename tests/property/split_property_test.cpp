#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "server/source/combine/split.h"
#include "server/source/formats/synthetic.h"

namespace headrace::server::source {
namespace {

TEST(SplitProperty, FractionsAreDisjointCoverAndHaveTheirSize) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 500; ++round) {
    const std::uint64_t n = 50 + rng() % 2000;
    const std::size_t count = 1 + rng() % 5;
    SplitFractions how;
    how.seed = rng();
    double left = 1;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      const double share = std::max(0.05, left * static_cast<double>(rng() % 60) / 100);
      if (left - share < 0.05) break;
      how.parts["p" + std::to_string(i)] = share;
      left -= share;
    }
    how.parts["rest"] = left;
    const auto parts = split(make_synthetic(n, 1).value(), how);
    ASSERT_TRUE(parts) << parts.error().message;
    std::vector<int> seen(n);
    for (const auto& [name, part] : *parts) {
      EXPECT_NEAR(static_cast<double>(part->size()), how.parts.at(name) * static_cast<double>(n), 1.001);
      for (std::uint64_t i = 0; i < part->size(); ++i) {
        ++seen.at(part->whole_index(i));
        ASSERT_TRUE(i == 0 || part->whole_index(i - 1) < part->whole_index(i));
      }
    }
    for (const int times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(SplitProperty, FractionsAreSpreadOverTheSource) {
  const auto parts =
      split(make_synthetic(100'000, 1).value(), SplitFractions{{{"train", 0.9}, {"val", 0.1}}, 3}).value();
  const auto& val = *parts.at("val");
  ASSERT_EQ(val.size(), 10'000U);
  std::vector<int> tenths(10);
  for (std::uint64_t i = 0; i < val.size(); ++i) ++tenths.at(val.whole_index(i) / 10'000);
  double chi = 0;
  for (const int c : tenths) chi += (c - 1000.0) * (c - 1000.0) / 900;  // without replacement: 1000 * 0.9
  EXPECT_LT(chi, 27.9) << "9 degrees of freedom, p = 0.001";
}

TEST(SplitProperty, ASumBelowOneLeavesSamplesOut) {
  const auto parts = split(make_synthetic(1000, 1).value(), SplitFractions{{{"some", 0.25}}, 3}).value();
  EXPECT_EQ(parts.at("some")->size(), 250U);
}

}  // namespace
}  // namespace headrace::server::source
