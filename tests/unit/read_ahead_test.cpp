// Reading ahead: which samples are read, when and how many; errors, and samples that no reader requests.
#include "server/io/read_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "server/source/formats/synthetic.h"
#include "tests/forwarding_source.h"

namespace headrace::testing {
namespace {

using server::io::ReadAhead;
using server::io::ReadPool;
using server::source::Sample;
using Urgency = ReadAhead::Urgency;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = 1000;

/// Reads wait at a gate, and each is recorded with its thread. Sample 666 cannot be read, 667 throws, 668 is
/// in memory.
class Gated final : public ForwardingSource {
 public:
  Gated() : ForwardingSource(server::source::make_synthetic(10'000, kBytes).value()), mapped_(3 * 4096, 7) {}

  Result<void> read(std::uint64_t index, Sample& out) const override {
    {
      std::unique_lock lock(mutex_);
      begun_.push_back(index);
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
    }
    if (index == 666) return fail(ErrorCode::kTransientIo, "sample 666: no disk");
    if (index == 667) throw std::bad_alloc();
    if (index == 668) {
      out.item(0).bytes = mapped_;
      return {};
    }
    return ForwardingSource::read(index, out);
  }
  void shut() { set(false); }
  void open() { set(true); }
  void await_begun(std::size_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_.size() >= count; });
  }
  [[nodiscard]] std::vector<std::uint64_t> begun() const {
    const std::scoped_lock lock(mutex_);
    return begun_;
  }
  [[nodiscard]] const std::uint8_t* mapped() const { return mapped_.data(); }

 private:
  void set(bool open) {
    const std::scoped_lock lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  const std::vector<std::uint8_t> mapped_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::vector<std::uint64_t> begun_;
  bool open_ = true;
};

/// The index at the start of the bytes, as in synthetic rows.
std::uint64_t number_in(const Sample& sample) {
  std::uint64_t number = 0;
  EXPECT_EQ(sample.items.at(0).bytes.size(), kBytes);
  std::memcpy(&number, sample.items.at(0).bytes.data(), sizeof number);
  return number;
}

class ReadAheadTest : public ::testing::Test {
 protected:
  void make(unsigned threads, const ReadAhead::Options& options = {}) {
    reads_ = std::make_unique<ReadAhead>(std::make_shared<ReadPool>("set", threads), source_, options);
    reads_->start();
  }
  void expect(const std::vector<std::uint64_t>& indices, Urgency urgency = Urgency::kLater) {
    reads_->expect(indices, urgency);
  }
  [[nodiscard]] std::uint64_t take(std::uint64_t index) {
    const auto read = reads_->read(index, sample_);
    EXPECT_TRUE(read) << read.error().to_string();
    return number_in(sample_);
  }
  template <class Condition>
  static void await(const Condition& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "the condition did not become true within 20 s";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// Waits until all expected samples were read.
  void settle() const {
    await([this] {
      const auto now = reads_->counts();
      return now.queued + now.reading == 0;
    });
  }

  const std::shared_ptr<Gated> source_ = std::make_shared<Gated>();
  std::unique_ptr<ReadAhead> reads_;
  Sample sample_;
};

TEST_F(ReadAheadTest, GivesEveryReaderTheSourcesBytes) {
  make(4);
  std::vector<std::uint64_t> indices(200);
  std::iota(indices.begin(), indices.end(), 0);
  expect(indices);
  settle();
  for (const std::uint64_t index : indices) EXPECT_EQ(take(index), index);
  const auto counts = reads_->counts();
  EXPECT_EQ(counts.hits, 200U);
  EXPECT_EQ(counts.waits + counts.misses + counts.dropped, 0U);
  EXPECT_EQ(counts.reads, 200U);
  EXPECT_EQ(counts.read_samples + counts.read_bytes + counts.queued, 0U);
}

TEST_F(ReadAheadTest, ReadsInTheOrderOfTheExpectationsUrgentOnesFirst) {
  make(1);
  source_->shut();
  expect({5});
  source_->await_begun(1);
  expect({9, 1, 7});
  expect({4, 2}, Urgency::kNext);
  source_->open();
  settle();
  EXPECT_THAT(source_->begun(), ElementsAre(5, 4, 2, 9, 1, 7));
}

TEST_F(ReadAheadTest, ReadsAtOnceWhatIsNotExpectedOrHasNotBegun) {
  make(1);
  source_->shut();
  expect({1});
  source_->await_begun(1);
  expect({2, 3});
  std::thread opens([&] {
    source_->await_begun(2);
    source_->open();
  });
  EXPECT_EQ(take(3), 3U);  // by this thread, while the pool's only one is at sample 1
  opens.join();
  EXPECT_EQ(take(77), 77U);
  settle();
  EXPECT_EQ(take(1), 1U);
  EXPECT_EQ(take(2), 2U);
  EXPECT_EQ(reads_->counts().misses, 2U);
  EXPECT_EQ(reads_->counts().hits, 2U);
}

TEST_F(ReadAheadTest, WaitsForTheReadThatIsUnderWay) {
  make(1);
  source_->shut();
  expect({8});
  source_->await_begun(1);
  std::thread opens([&] {
    while (reads_->ready(std::vector<std::uint64_t>{8})) std::this_thread::yield();
    source_->open();
  });
  EXPECT_EQ(take(8), 8U);
  opens.join();
  EXPECT_EQ(reads_->counts().waits, 1U);
  EXPECT_THAT(source_->begun(), ElementsAre(8)) << "read once";
}

TEST_F(ReadAheadTest, SaysForWhatItWaitedTooLong) {
  make(1, {.patience = std::chrono::milliseconds(20)});
  source_->shut();
  expect({8});
  source_->await_begun(1);
  const auto read = reads_->read(8, sample_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kTransientIo);
  EXPECT_THAT(read.error().message, HasSubstr("synthetic/8: a read has not returned for 0 s"));
  EXPECT_TRUE(reads_->ready(std::vector<std::uint64_t>{8})) << "its reader gets the error";
  source_->open();
}

TEST_F(ReadAheadTest, HandsErrorsAndExceptionsToTheReaderOfThatSample) {
  make(2);
  expect({665, 666, 667, 664});
  settle();
  EXPECT_EQ(take(664), 664U);
  const auto read = reads_->read(666, sample_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kTransientIo);
  EXPECT_EQ(read.error().message, "sample 666: no disk");
  EXPECT_THROW((void)reads_->read(667, sample_), std::bad_alloc);
  EXPECT_EQ(take(665), 665U);
  expect({666});
  EXPECT_FALSE(reads_->read(666, sample_)) << "a second request reads it again";
}

TEST_F(ReadAheadTest, ReadsOnceWhatIsExpectedTwice) {
  make(1);
  expect({3, 4, 3});
  expect({3});
  settle();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(take(3), 3U);
  EXPECT_EQ(take(4), 4U);
  EXPECT_THAT(source_->begun(), ElementsAre(3, 4));
  EXPECT_EQ(take(3), 3U);
  EXPECT_EQ(reads_->counts().misses, 1U) << "the fourth was not expected";
}

TEST_F(ReadAheadTest, CopiesNoSamplesThatTheSourceKeepsInMemory) {
  make(1);
  expect({668, 668});
  settle();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(reads_->read(668, sample_));
    EXPECT_EQ(sample_.items.at(0).bytes.data(), source_->mapped());
    EXPECT_EQ(sample_.items.at(0).bytes.size(), 3U * 4096);
  }
}

TEST_F(ReadAheadTest, KeepsWithinItsSamplesAndDropsWhatIsNeverTaken) {
  make(2, {.samples = 10});
  for (std::uint64_t first = 0; first < 1000; first += 5) {
    expect({first, first + 1, first + 2, first + 3, first + 4});
    const auto now = reads_->counts();
    ASSERT_LE(now.queued + now.reading + now.read_samples, 10U);
    settle();
  }
  EXPECT_GT(reads_->counts().dropped, 0U);
  expect({5000, 5001}, Urgency::kNext);
  settle();
  EXPECT_EQ(take(5000), 5000U);
  EXPECT_EQ(take(5001), 5001U);
  EXPECT_EQ(reads_->counts().hits, 2U);
  EXPECT_EQ(take(0), 0U) << "dropped long ago, and read nevertheless";
}

TEST_F(ReadAheadTest, ReplacesTheLastUnreadExpectationWithAnUrgentOne) {
  make(1, {.samples = 3});
  source_->shut();
  expect({1, 2, 3, 4});
  source_->await_begun(1);
  expect({8, 9}, Urgency::kNext);
  source_->open();
  settle();
  EXPECT_THAT(source_->begun(), ElementsAre(1, 8, 9));
}

TEST_F(ReadAheadTest, KeepsWithinItsBytesButReadsWhatIsWaitedFor) {
  make(1, {.bytes = 5 * kBytes});
  std::vector<std::uint64_t> indices(50);
  std::iota(indices.begin(), indices.end(), 0);
  expect(indices);
  await([&] { return reads_->counts().read_samples == 5; });
  EXPECT_EQ(reads_->counts().queued, 45U);
  await([&] { return reads_->ready(std::vector<std::uint64_t>{40, 41}); });
  EXPECT_EQ(reads_->counts().read_samples, 7U);
  for (const std::uint64_t index : indices) {
    EXPECT_EQ(take(index), index);
    EXPECT_LE(reads_->counts().read_bytes, 7 * kBytes);
  }
}

TEST_F(ReadAheadTest, RingsForWhatWasFoundMissing) {
  make(1);
  const ring::UniqueFd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  reads_->ring_when_ready(ring::UniqueFd(::dup(bell.get())));
  const auto rung = [&](int wait_ms) {
    pollfd poll{bell.get(), POLLIN, 0};
    return ::poll(&poll, 1, wait_ms) == 1;
  };
  expect({1});
  settle();
  EXPECT_FALSE(rung(0)) << "no reader found it missing";
  source_->shut();
  expect({2, 3, 4});
  source_->await_begun(2);
  EXPECT_FALSE(reads_->ready(std::vector<std::uint64_t>{1, 4}));
  source_->open();
  EXPECT_TRUE(rung(20'000));
  settle();
  EXPECT_TRUE(reads_->ready(std::vector<std::uint64_t>{1, 4}));
  EXPECT_THAT(source_->begun(), ElementsAre(1, 2, 4, 3)) << "the awaited sample comes first";
  EXPECT_TRUE(reads_->ready(std::vector<std::uint64_t>{99})) << "not expected: there is nothing to wait for";
}

TEST_F(ReadAheadTest, ReadsInTheOrderOfRequests) {
  make(1);
  source_->shut();
  expect({1});
  source_->await_begun(1);
  expect({2, 3, 4, 5, 6, 7});
  EXPECT_FALSE(reads_->ready(std::vector<std::uint64_t>{4, 6}));
  EXPECT_FALSE(reads_->ready(std::vector<std::uint64_t>{7, 3}));
  EXPECT_FALSE(reads_->ready(std::vector<std::uint64_t>{6, 5, 4})) << "a second request changes nothing";
  source_->open();
  settle();
  EXPECT_THAT(source_->begun(), ElementsAre(1, 4, 6, 7, 3, 5, 2));
}

TEST_F(ReadAheadTest, ForgetsWhatIsNotWantedAnyMore) {
  make(1);
  source_->shut();
  expect({1});
  source_->await_begun(1);
  expect({2, 3, 3});
  reads_->forget(std::vector<std::uint64_t>{1, 2, 3, 50});
  source_->open();
  settle();
  EXPECT_THAT(source_->begun(), ElementsAre(1, 3));
  EXPECT_EQ(reads_->counts().read_samples, 1U) << "sample 3 was expected twice";
  source_->shut();
  expect({4, 5});
  source_->await_begun(3);
  reads_->clear();
  EXPECT_EQ(reads_->counts().read_samples + reads_->counts().queued, 0U);
  source_->open();
  settle();
  EXPECT_EQ(reads_->counts().read_samples, 0U);
  EXPECT_THAT(source_->begun(), ElementsAre(1, 3, 4));
}

TEST_F(ReadAheadTest, EndsOnceTheReadsThatAreUnderWayHaveEnded) {
  make(2);
  source_->shut();
  expect({1, 2, 3, 4, 5});
  source_->await_begun(2);
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    source_->open();
  });
  reads_.reset();
  const auto begun = source_->begun().size();
  opens.join();
  EXPECT_GE(begun, 2U);
  EXPECT_EQ(source_->begun().size(), begun) << "a read began after the end";
}

TEST_F(ReadAheadTest, SharesItsThreadsWithOtherStreams) {
  const auto pool = std::make_shared<ReadPool>("set", 1);
  ReadAhead one(pool, source_, {});
  ReadAhead two(pool, source_, {});
  one.start();
  source_->shut();
  one.expect(std::vector<std::uint64_t>{1, 2, 3}, Urgency::kLater);
  source_->await_begun(1);
  two.expect(std::vector<std::uint64_t>{11, 12, 13}, Urgency::kLater);
  source_->open();
  source_->await_begun(6);
  EXPECT_THAT(source_->begun(), ElementsAre(1, 11, 2, 12, 3, 13)) << "in turn";
}

TEST_F(ReadAheadTest, GivesEveryReaderItsSampleWhileOthersAreExpectedAndForgotten) {
  make(8, {.samples = 40, .bytes = 25 * kBytes});
  std::vector<std::thread> readers;
  for (unsigned seed = 0; seed < 4; ++seed)
    readers.emplace_back([&, seed] {
      std::mt19937 random(seed);
      Sample sample;
      for (int step = 0; step < 3000; ++step) {
        std::vector<std::uint64_t> indices(1 + random() % 6);
        for (std::uint64_t& index : indices) index = random() % 60;  // few: readers meet
        reads_->expect(indices, random() % 2 ? Urgency::kNext : Urgency::kLater);
        if (random() % 3 == 0) (void)reads_->ready(indices);
        if (random() % 8 == 0) reads_->forget(indices);
        if (random() % 200 == 0) reads_->clear();
        for (const std::uint64_t index : indices) {
          ASSERT_TRUE(reads_->read(index, sample));
          ASSERT_EQ(number_in(sample), index);
        }
      }
    });
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace headrace::testing
