#include "clientlib/base/human.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Human, BytesHaveTheUnitThatKeepsThemShort) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(28'700), "28.7 KB");
  EXPECT_EQ(human_bytes(12'345'678), "12.3 MB");
  EXPECT_EQ(human_bytes(48'318'400'000), "48.32 GB");
  EXPECT_EQ(human_bytes(30'000'000'000'000), "30.00 TB");
}

TEST(Human, TimesHaveHoursOnlyIfNeeded) {
  EXPECT_EQ(human_time(std::chrono::seconds(123)), "2:03");
  EXPECT_EQ(human_time(std::chrono::seconds(3723)), "1:02:03");
}

TEST(Human, CountsAgreeWithTheirNoun) {
  EXPECT_EQ(count_of(1, "sample"), "1 sample");
  EXPECT_EQ(count_of(0, "sample"), "0 samples");
}

TEST(Human, BarsAreNeverFullerThanTheyAreWide) {
  EXPECT_EQ(bar(0.5, 4), "[##..]");
  EXPECT_EQ(bar(1.1, 4), "[####]");
}

}  // namespace
}  // namespace headrace
