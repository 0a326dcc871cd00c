// Batches of a real server through a DeviceLoader on the CPU backend, and on devices that stall or fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/device_loader.h"

namespace headrace::gpu {
namespace {

using testing::HasSubstr;

TEST_F(DeviceLoaderTest, GivesTheBytesRowsAndEpochsOfTheStream) {
  Stream stream = open();
  const auto loader = load();
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(loader->length(), stream.length());
    for (;;) {
      const auto expected = stream.next(20s).value();
      const auto batch = loader->next(20s).value();
      ASSERT_EQ(batch.has_value(), expected.has_value());
      if (!batch) break;
      ASSERT_EQ(seen(*batch), seen(*expected));
    }
  }
  EXPECT_EQ(loader->epoch(), 3U);
}

TEST_F(DeviceLoaderTest, PrefetchesAsManyBatchesAsConfiguredAndNoMore) {
  const auto loader = load({.prefetch = 3});
  const DeviceBatch first = next(*loader);
  ASSERT_TRUE(comes_true([&] { return loader->ready() == 3; })) << loader->ready();
  next(*loader);
  ASSERT_TRUE(comes_true([&] { return loader->ready() == 3; })) << loader->ready();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(loader->ready(), 3U);
}

TEST_F(DeviceLoaderTest, NeverWaitsForACopyAndKeepsLeasesUntilTheirCopiesEnd) {
  std::promise<void> gate;
  Script script{.gate = gate.get_future().share()};
  const auto loader = load_on(script);
  DeviceBatch batch = next(*loader);
  ASSERT_TRUE(batch.wait_on(42).has_value());
  EXPECT_THAT(script.held_streams, testing::ElementsAre(42));
  // The server fills a slot again only when its lease is over: of 4 leases, no batch beyond the 3rd is
  // copied.
  const auto more = std::async(std::launch::async, [&] {
    std::vector<Seen> rest;
    for (int i = 0; i < 5; ++i) rest.push_back(seen(next(*loader)));
    return rest;
  });
  EXPECT_EQ(more.wait_for(300ms), std::future_status::timeout);
  gate.set_value();
  EXPECT_EQ(more.wait_for(20s), std::future_status::ready);
}

TEST_F(DeviceLoaderTest, CountsOnlyReturnedBatchesInStatesAndCommits) {
  Stream stream = open();
  std::vector<Seen> expected;
  while (const auto batch = stream.next(20s).value()) expected.push_back(seen(*batch));
  State state;
  {
    const auto loader = load({.prefetch = 4}, {.group = "job", .client = "first"});
    for (int i = 0; i < 3; ++i) ASSERT_EQ(seen(next(*loader)), expected[i]);
    ASSERT_TRUE(comes_true([&] { return loader->ready() > 0; }));
    state = loader->state();
    EXPECT_EQ(state.cursor, (Cursor{0, 0, 3}));
  }
  EXPECT_EQ(seen(next(*load({}, {.group = "job", .client = "first", .resume_from_server = true}))),
            expected[2])
      << "the third was the loop's current batch";
  EXPECT_EQ(seen(next(*load({}, {.client = "second", .state = state}))), expected[3]);
}

TEST_F(DeviceLoaderTest, BehavesAsAStreamUnderRandomCalls) {
  std::mt19937 random(7);
  const auto any = [&](std::size_t n) { return random() % n; };
  for (const std::uint32_t prefetch : {1, 2, 5}) {
    Stream stream = open();
    const auto loader = load({.prefetch = prefetch});
    std::vector<State> states;
    for (int step = 0; step < 300; ++step) {
      switch (any(12)) {
        case 0: {
          const std::uint64_t epoch = any(3);
          ASSERT_TRUE(stream.set_epoch(epoch).has_value());
          ASSERT_TRUE(loader->set_epoch(epoch).has_value());
          break;
        }
        case 1:
          ASSERT_TRUE(stream.next_epoch().has_value());
          ASSERT_TRUE(loader->next_epoch().has_value());
          break;
        case 2:
          states.push_back(stream.state());
          break;
        case 3:
          if (states.empty()) break;
          ASSERT_TRUE(stream.load_state(states[any(states.size())]).has_value());
          ASSERT_TRUE(loader->load_state(stream.state()).has_value());
          break;
        default: {
          const auto expected = stream.next(20s).value();
          const auto batch = loader->next(20s).value();
          ASSERT_EQ(batch.has_value(), expected.has_value()) << "step " << step;
          if (batch) {
            ASSERT_EQ(seen(*batch), seen(*expected)) << "step " << step;
          }
        }
      }
      ASSERT_EQ(loader->cursor(), stream.cursor()) << "step " << step;
      ASSERT_EQ(loader->state().to_json(), stream.state().to_json());
      ASSERT_EQ(loader->epoch(), stream.epoch());
      ASSERT_EQ(loader->length(), stream.length()) << "step " << step;
      ASSERT_EQ(loader->begun(), stream.begun()) << "step " << step;
    }
  }
}

TEST_F(DeviceLoaderTest, ReadsEachBatchFromThePinnedRing) {
  const auto loader = load();
  for (std::uint64_t i = 0; i < loader->length(); ++i) next(*loader);
  EXPECT_GE(loader->stats().direct_copies, loader->length());
  EXPECT_EQ(loader->stats().staged_copies, 0U);
}

TEST_F(DeviceLoaderTest, ReportsStagedCopiesToTheServerWhenTheRingCannotBePinned) {
  Script script{.refuse_pin_after = 0};
  DeviceLoaderOptions options{.prefetch = 1};
  options.engine.warn = [](std::string_view) {};
  const auto loader = load_on(script, options);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(seen(next(*loader)).batch, static_cast<std::uint64_t>(i));
  const auto client = Client::connect({.address = directory_}).value();
  ASSERT_TRUE(comes_true([&] {
    const std::string stats = const_cast<Client&>(client).stats().value();
    return stats.find(R"("staged_copies":3)") != std::string::npos ||
           stats.find(R"("staged_copies":4)") != std::string::npos;
  }));
}

TEST_F(DeviceLoaderTest, AcceptsTheLongestTimeout) {
  const auto loader = load();
  const auto batch = loader->next(std::chrono::milliseconds::max());
  ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
  EXPECT_TRUE(batch->has_value());
}

TEST_F(DeviceLoaderTest, ReportsAFailedCopyAndRetriesItsBatch) {
  Stream stream = open();
  const Seen expected = seen(*stream.next(20s).value());
  Script script{.fail_copies = true};
  const auto loader = load_on(script);
  const auto failed = loader->next(20s);
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message, HasSubstr("the device is gone"));
  EXPECT_EQ(loader->cursor(), Cursor{});
  script.fail_copies = false;
  EXPECT_EQ(seen(next(*loader)), expected);
}

TEST_F(DeviceLoaderTest, ContinuesWithTheNextBatchOfARestartedServer) {
  Stream stream = open();
  const auto loader = load({.prefetch = 3});
  ASSERT_EQ(seen(next(*loader)), seen(*stream.next(20s).value()));
  serve();
  for (;;) {
    const auto expected = stream.next(20s).value();
    const auto batch = loader->next(20s).value();
    ASSERT_EQ(batch.has_value(), expected.has_value());
    if (!batch) break;
    ASSERT_EQ(seen(*batch), seen(*expected));
  }
}

TEST_F(DeviceLoaderTest, SaysWhatItWaitedForAndLosesNothingByIt) {
  const auto loader = load({}, {.reconnect_timeout = 60s});
  const Seen first = seen(next(*loader));
  while (loader->ready() > 0) next(*loader);
  server_.reset();
  Cursor due;
  for (;;) {
    due = loader->cursor();
    const auto batch = loader->next(300ms);
    if (batch) continue;
    EXPECT_EQ(batch.error().code, ErrorCode::kTimeout);
    EXPECT_THAT(batch.error().message, HasSubstr("waited 0."));
    break;
  }
  EXPECT_EQ(loader->cursor(), due);
  serve();
  const auto batch = loader->next(20s).value();
  EXPECT_TRUE(due.batch >= loader->length() ? !batch : batch->batch() == due.batch);
}

TEST_F(DeviceLoaderTest, ABreakByTheCallerLosesNothing) {
  const auto loader = load();
  next(*loader);
  server_.reset();
  while (loader->ready() > 0) next(*loader);
  const Cursor due = loader->cursor();
  loader->set_interrupt([] { return true; });
  const auto broken = loader->next(20s);
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code, ErrorCode::kTimeout);
  loader->set_interrupt({});
  serve();
  EXPECT_EQ(next(*loader).batch(), due.batch);
}

TEST_F(DeviceLoaderTest, AForkedChildIsRefusedAndDoesNotDisturbItsParent) {
  auto loader = load();
  next(*loader);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto batch = loader->next(1s);
    const bool refused = !batch && batch.error().code == ErrorCode::kForked;
    loader.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(next(*loader).batch(), 1U);
}

}  // namespace
}  // namespace headrace::gpu
