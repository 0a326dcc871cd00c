// When the log warns of a client that is more than max_lag behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/log/collected.h"
#include "tests/engine_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kSecond = 1'000'000'000;

void read(RingClient& client, int batches) {
  for (int i = 0; i < batches; ++i) {
    const auto grant = client.next();
    ASSERT_TRUE(grant);
    client.reader().ack(*grant);
  }
}

class Warnings : public ::testing::Test {
 protected:
  /// The warnings of a check at this time.
  std::vector<std::string> at(std::uint64_t now_ns) {
    server::log::Collected collected;
    engine_->with(0, [&](Stream& stream) {
      stream.publish_figures();
      stream.beat(now_ns, 0);
      return 0;
    });
    return collected.take();
  }

  std::unique_ptr<Engine> engine_ = start_engine({synthetic_stream("s", 4000, 4, 4)}, 1);
  const std::uint64_t begin_ = ring::monotonic_ns();
};

TEST_F(Warnings, NameEachClientThatStaysBehindOnce) {
  RingClient first(*engine_, "s", "first"), slow(*engine_, "s", "slow"), slower(*engine_, "s", "slower");
  read(first, 30);
  read(slow, 2);
  EXPECT_THAT(at(begin_), IsEmpty());
  EXPECT_THAT(at(begin_ + 4 * kSecond), IsEmpty());
  EXPECT_THAT(at(begin_ + 6 * kSecond),
              ElementsAre(AllOf(HasSubstr("client `slow` is 2"), HasSubstr(" behind `first`"),
                                HasSubstr("more than 4 (max_lag) behind for 5 s")),
                          HasSubstr("client `slower` is ")));
  EXPECT_THAT(at(begin_ + 60 * kSecond), IsEmpty());
}

TEST_F(Warnings, DoNotCountABriefStall) {
  RingClient first(*engine_, "s", "first"), other(*engine_, "s", "other");
  read(first, 30);
  EXPECT_THAT(at(begin_), IsEmpty());
  read(other, 30);
  EXPECT_THAT(at(begin_ + 4 * kSecond), IsEmpty());
  read(first, 30);
  EXPECT_THAT(at(begin_ + 6 * kSecond), IsEmpty()) << "a new stall";
  EXPECT_THAT(at(begin_ + 10 * kSecond), IsEmpty());
  EXPECT_THAT(at(begin_ + 12 * kSecond), ElementsAre(HasSubstr("client `other` is ")));
}

}  // namespace
}  // namespace headrace::testing
