// A hostile client loses its own session, and does not affect any other client.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tests/engine_fixture.h"

namespace headrace::testing {
namespace {

std::vector<std::pair<std::uint32_t, std::string>> protocol_errors(Engine& engine) {
  return engine.inspect(0, [](const Stream& s) { return s.lanes().protocol_errors(); });
}

template <class Condition>
bool soon(Condition condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(HostileClient, WithAJumpingAckCountIsFoundOnceAndItsSuccessorIsNot) {
  auto engine = start_engine({synthetic_stream("s", 500, 8, 2)}, 2);
  RingClient good(*engine, "s", "good");
  {
    RingClient bad(*engine, "s", "bad");
    ASSERT_TRUE(bad.next());
    bad.reader().lease().acked.store(1'000'000);
    ASSERT_TRUE(soon([&] { return !protocol_errors(*engine).empty(); }));
    EXPECT_EQ(protocol_errors(*engine).front().first, bad.opened().lane);
    bad.leave();
  }
  RingClient next(*engine, "s", "next");
  for (int i = 0; i < 100; ++i) {
    for (RingClient* client : {&good, &next}) {
      const auto grant = client->next();
      ASSERT_TRUE(grant);
      client->reader().ack(*grant);
    }
  }
  EXPECT_TRUE(protocol_errors(*engine).empty()) << "the lane's next client must not be affected";
}

TEST(HostileClient, ThatAcksWhatItDoesNotHoldIsFound) {
  auto engine = start_engine({synthetic_stream("s", 500, 8, 2)}, 2);
  RingClient bad(*engine, "s", "bad");
  const auto grant = bad.next();
  ASSERT_TRUE(grant);
  ring::Grant other = *grant;
  other.generation += 1000;
  bad.reader().ack(other);
  EXPECT_TRUE(soon([&] { return !protocol_errors(*engine).empty(); }));
}

TEST(HostileClient, ThatSeeksOutsideOfTheEpochIsRefused) {
  auto engine = start_engine({synthetic_stream("s", 500, 8, 2)}, 1);
  wire::OpenRequest request;
  request.stream = "s";
  request.group = request.client = "bad";
  for (const Cursor cursor : {Cursor{0, 501, 0}, Cursor{3, 1'000'000'000, 7}}) {
    request.position = cursor;
    request.start.reset();
    auto refused = engine->open(0, request);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("500 samples"), std::string::npos);
    request.start = cursor;
    request.position.reset();
    EXPECT_FALSE(engine->open(0, request));
  }
}

TEST(HostileClient, ThatNamesAFarEpochHoldsNobodyUp) {
  auto engine = start_engine({synthetic_stream("s", 500, 8, 2)}, 2);
  RingClient good(*engine, "s", "good"), far(*engine, "s", "far");
  far.seek({std::numeric_limits<std::uint32_t>::max(), 0, 12345});
  for (int i = 0; i < 200; ++i) {
    const auto grant = good.next();
    ASSERT_TRUE(grant) << "held up at batch " << i;
    good.reader().ack(*grant);
  }
}

}  // namespace
}  // namespace headrace::testing
