// A feed: which batches it accepts, how its rows are read, and when a slot becomes free.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "server/sampler/sampler.h"
#include "server/source/formats/feed.h"

namespace headrace::server::source {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Epochs of 10 samples in batches of 4. `x` is a pair of int32; `words` is ragged with at most 20 values in
/// a batch.
std::shared_ptr<Feed> small_feed() {
  auto feed = Feed::make({.name = "f",
                          .fields = {{.name = "x", .dtype = DType::kInt32, .shape = {2}},
                                     {.name = "words", .dtype = DType::kUInt8, .most_values = 20}},
                          .samples = 10,
                          .batch_size = 4,
                          .slots = 2})
                  .value();
  EXPECT_TRUE(feed->allocate());
  return feed;
}

class FeedTest : public testing::Test {
 protected:
  std::byte* at(std::uint32_t slot, std::uint64_t offset) {
    return memory_.data() + slot * feed_->slot_bytes() + offset;
  }
  void write(std::uint32_t slot, const std::vector<std::int32_t>& x,
             const std::vector<std::int64_t>& offsets) {
    const auto x_bytes = std::as_bytes(std::span(x)), offset_bytes = std::as_bytes(std::span(offsets));
    std::copy(x_bytes.begin(), x_bytes.end(), at(slot, feed_->places()[0].values));
    std::copy(offset_bytes.begin(), offset_bytes.end(), at(slot, feed_->places()[1].offsets));
    for (int i = 0; i < 20; ++i)
      *at(slot, feed_->places()[1].values + static_cast<std::uint64_t>(i)) = std::byte(i);
  }
  static std::vector<std::int32_t> numbers(const Item& item) {
    std::vector<std::int32_t> out(item.bytes.size() / sizeof(std::int32_t));
    std::memcpy(out.data(), item.bytes.data(), item.bytes.size());
    return out;
  }

  std::shared_ptr<Feed> feed_ = small_feed();
  ring::Segment memory_ = ring::Segment::map(ring::UniqueFd(::dup(feed_->memory())), ring::Access::kReadWrite,
                                             feed_->slot_bytes() * 2)
                              .value();
  Fed source_{feed_};
};

TEST_F(FeedTest, RowsOfAHeldBatchAreReadFromItsSlot) {
  write(1, {1, 2, 3, 4, 5, 6, 7, 8}, {0, 3, 3, 4, 9});
  ASSERT_TRUE(feed_->accept({.number = 0, .slot = 1, .rows = 4}));
  Sample sample;
  ASSERT_TRUE(source_.read(3, sample));
  EXPECT_THAT(numbers(sample.items[0]), ElementsAre(7, 8));
  EXPECT_THAT(sample.items[1].bytes, ElementsAre(4, 5, 6, 7, 8));
  ASSERT_TRUE(source_.read(1, sample));
  EXPECT_THAT(numbers(sample.items[0]), ElementsAre(3, 4));
  EXPECT_TRUE(sample.items[1].bytes.empty());
}

TEST_F(FeedTest, LaterWritesByTheFeederDoNotMoveRows) {
  write(0, {1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 2, 3, 4});
  ASSERT_TRUE(feed_->accept({.number = 0, .slot = 0, .rows = 4}));
  write(0, {}, {0, 1 << 30, 1 << 30, 1 << 30, 1 << 30});
  Sample sample;
  ASSERT_TRUE(source_.read(0, sample));
  EXPECT_EQ(sample.items[1].bytes.size(), 1U);
}

TEST_F(FeedTest, TheLastBatchOfAnEpochIsShorterAndTheNextEpochFollows) {
  EXPECT_EQ(feed_->batches(), 3U);
  EXPECT_EQ(feed_->rows_of(2), 2U);
  EXPECT_EQ(feed_->rows_of(3), 4U);
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    write(0, {}, {0, 0, 0, 0, 0});
    ASSERT_TRUE(feed_->accept({.number = batch, .slot = 0, .rows = feed_->rows_of(batch)}));
    feed_->release(batch);
  }
  write(1, {11, 12}, {0, 0, 0, 0, 0});
  ASSERT_TRUE(feed_->accept({.number = 3, .slot = 1, .rows = 4}));
  const auto epochs = sampler::make_epochs(10);
  const auto order = epochs->order(1);
  Sample sample;
  ASSERT_TRUE(source_.read(order(0), sample));
  EXPECT_THAT(numbers(sample.items[0]), ElementsAre(11, 12));
  EXPECT_EQ(source_.whole_index(order(7)), 7U);
}

TEST_F(FeedTest, ReadingABatchThatWasReleasedOrHasNotArrivedIsAnError) {
  Sample sample;
  const auto early = source_.read(12, sample);
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(early.error().message, HasSubstr("batch 0 of epoch 1 of feed `f`"));
  write(0, {}, {0, 0, 0, 0, 0});
  ASSERT_TRUE(feed_->accept({.number = 0, .slot = 0, .rows = 4}));
  feed_->release(0);
  EXPECT_FALSE(source_.read(0, sample));
}

TEST_F(FeedTest, AFreedSlotIsReportedOnce) {
  std::vector<std::uint32_t> freed;
  feed_->when_freed([&](std::uint32_t slot) { freed.push_back(slot); });
  write(1, {}, {0, 0, 0, 0, 0});
  ASSERT_TRUE(feed_->accept({.number = 0, .slot = 1, .rows = 4}));
  feed_->release(0);
  feed_->release(0);
  EXPECT_THAT(freed, ElementsAre(1));
}

TEST_F(FeedTest, AWrongBatchIsRefusedAndNothingChanges) {
  write(0, {}, {0, 1, 2, 3, 4});
  write(1, {}, {0, 1, 2, 3, 4});
  const auto refused = [&](Feed::Batch batch, const char* why) {
    const auto done = feed_->accept(batch);
    ASSERT_FALSE(done) << why;
    EXPECT_EQ(done.error().code, ErrorCode::kBadMessage);
    EXPECT_THAT(done.error().message, HasSubstr(why));
  };
  refused({.number = 1, .slot = 0, .rows = 4}, "expected batch number 0, found 1");
  refused({.number = 0, .slot = 2, .rows = 4}, "slot 2, which is not free");
  refused({.number = 0, .slot = 0, .rows = 3}, "expected 4 rows, found 3");
  ASSERT_TRUE(feed_->accept({.number = 0, .slot = 0, .rows = 4}));
  refused({.number = 1, .slot = 0, .rows = 4}, "slot 0, which is not free");
  refused({.number = 0, .slot = 1, .rows = 4}, "expected batch number 1, found 0");
  for (const std::vector<std::int64_t>& offsets : std::vector<std::vector<std::int64_t>>{
           {1, 1, 2, 3, 4}, {0, 2, 1, 3, 4}, {0, 1, 2, 3, 21}, {0, 0, 0, 0, -1}, {0, 0, 0, 0, INT64_MAX}}) {
    write(1, {}, offsets);
    refused({.number = 1, .slot = 1, .rows = 4}, "field `words`: offsets must rise from 0 to at most 20");
  }
  EXPECT_EQ(feed_->received(), 1U);
  write(1, {}, {0, 0, 0, 0, 20});
  EXPECT_TRUE(feed_->accept({.number = 1, .slot = 1, .rows = 4}));
}

TEST(Feed, ABatchOfMoreThanATerabyteIsRefusedBeforeAllocation) {
  const auto huge =
      Feed::make({.name = "f",
                  .fields = {{.name = "x", .dtype = DType::kFloat64, .shape = {1 << 30, 1 << 30, 1 << 30}}},
                  .samples = 10,
                  .batch_size = 1000000});
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message,
              HasSubstr("field `x`: a batch of 1000000 rows would have more than 1 TB"));
}

}  // namespace
}  // namespace headrace::server::source
