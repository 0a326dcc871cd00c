// Turns of large images, and the end of decoding when a server stops.
#include "server/decode/turn.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "clientlib/ring/segment.h"
#include "server/decode/decoder.h"
#include "server/decode/stop.h"
#include "tests/pixels/make_jpeg.h"

namespace headrace::testing {
namespace {

using namespace std::chrono_literals;
using server::decode::Decoder;
using server::decode::StopOn;
using server::decode::Stopped;
using server::decode::Turn;

constexpr std::size_t kSome = 256 << 20;

/// More than half of the free memory.
std::size_t most_of_it() {
  return ring::memory_headroom().bytes / 5 * 3;
}

TEST(Turn, OfASmallImageIsEmpty) {
  EXPECT_TRUE(Turn::take(Turn::kLarge - 1).value().is_empty());
  EXPECT_FALSE(Turn::take(Turn::kLarge).value().is_empty());
}

TEST(Turn, ComesWhenAnotherEnds) {
  const std::size_t most = most_of_it();
  Turn first = Turn::take(most).value();
  auto second = std::async(std::launch::async, [=] { return Turn::take(most).has_value(); });
  EXPECT_EQ(second.wait_for(300ms), std::future_status::timeout);
  first.end();
  EXPECT_TRUE(second.get());
}

TEST(Turn, ThatIsAwaitedEndsWhenTheThreadMustStop) {
  const std::size_t most = most_of_it();
  const Turn first = Turn::take(most).value();
  std::atomic<bool> stop{false};
  auto second = std::async(std::launch::async, [&] {
    const StopOn on(stop);
    (void)Turn::take(most);
  });
  EXPECT_EQ(second.wait_for(200ms), std::future_status::timeout);
  stop = true;
  EXPECT_THROW(second.get(), Stopped);
}

/// Address space that is left to this process.
class Limit {
 public:
  Limit() { ::getrlimit(RLIMIT_AS, &before_); }
  ~Limit() { lift(); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  void leave(std::size_t bytes) const {
    rlimit now = before_;
    now.rlim_cur = mapped() + bytes;
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &now), 0);
  }
  void lift() const { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  static std::size_t mapped() {
    std::ifstream file("/proc/self/statm");
    std::size_t pages = 0;
    file >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }
  rlimit before_{};
};

TEST(Turn, WaitsForMemoryThatIsLackingForAWhile) {
  std::promise<void> begin;  // the thread exists before memory is short
  auto turn = std::async(std::launch::async, [begun = begin.get_future()]() mutable {
    begun.wait();
    return Turn::take(kSome).has_value();
  });
  const Limit limit;
  limit.leave(kSome / 2);
  std::this_thread::sleep_for(150ms);  // until free memory is measured again
  begin.set_value();
  EXPECT_EQ(turn.wait_for(500ms), std::future_status::timeout);
  limit.lift();
  EXPECT_TRUE(turn.get());
}

TEST(Decoding, HasATurnForWhatItsCallerNeedsUntilTheImageIsClosed) {
  const auto file = pixels::make_jpeg({.width = 64, .height = 48});
  for (const std::size_t more : {Turn::kLarge / 2, Turn::kLarge}) {
    Decoder decoder;
    ASSERT_TRUE(decoder.open(file, 1 << 20));
    ASSERT_TRUE(decoder.begin({0, 0, 64, 48}, false, more));
    for (int rows = 0; rows < 48;) rows += decoder.next().value().count;
    EXPECT_EQ(decoder.has_turn(), more == Turn::kLarge);
    decoder.close();
    EXPECT_FALSE(decoder.has_turn());
  }
}

TEST(Decoding, EndsWhenTheThreadMustStopAndTheDecoderCanBeUsedAgain) {
  std::atomic<bool> stop{false};
  const StopOn on(stop);
  Decoder decoder;
  for (const bool progressive : {false, true}) {
    const auto file = pixels::make_jpeg({.width = 640, .height = 480, .progressive = progressive});
    stop = false;
    ASSERT_TRUE(decoder.open(file, 1 << 20));
    ASSERT_TRUE(decoder.begin({0, 0, 640, 480}, false));
    ASSERT_TRUE(decoder.next());
    stop = true;
    EXPECT_THROW((void)decoder.next(), Stopped);
    ASSERT_TRUE(decoder.open(file, 1 << 20));
    if (progressive) {
      EXPECT_THROW((void)decoder.begin({0, 0, 640, 480}, false), Stopped) << "all scans are read here";
    }
    stop = false;
    ASSERT_TRUE(decoder.open(file, 1 << 20));
    ASSERT_TRUE(decoder.begin({0, 0, 640, 480}, false));
    for (int rows = 0; rows < 480;) {
      const auto block = decoder.next();
      ASSERT_TRUE(block);
      rows += block->count;
    }
  }
}

}  // namespace
}  // namespace headrace::testing
