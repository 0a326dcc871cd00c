// Rows that are kept for others: who makes them, who waits, and which ones give way when the budget is used
// up.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <future>
#include <thread>

#include "server/exec/row_window.h"

namespace headrace::server::exec {
namespace {

constexpr std::size_t kRowBytes = 100, kRowCost = kRowBytes + 160;
constexpr std::uint64_t kPositions = 1000;

RowWindow window_of(std::uint64_t rows, std::uint32_t streams = 2) {
  return {rows * kRowCost, kRowBytes, kPositions, streams};
}

constexpr std::optional<RowWindow::Lanes> kNobody{}, kAnyone{RowWindow::Lanes{}};

/// Whether the row was put into the window.
bool keep(RowWindow& window, std::uint64_t row, const RowWindow::Lanes& served = {}) {
  auto found = window.find(row, served, false);
  if (!found.claim) return false;
  std::memset(found.claim->bytes(), static_cast<int>(row % 251), kRowBytes);
  std::move(*found.claim).done(row + 7, static_cast<std::int64_t>(row % 10));
  return true;
}

bool has(RowWindow& window, std::uint64_t row) {
  const auto found = window.find(row, kNobody, false);
  return found.row && std::to_integer<std::uint64_t>(found.row->bytes[kRowBytes - 1]) == row % 251;
}

TEST(RowWindow, GivesARowBackAsItWasMade) {
  auto window = window_of(10);
  EXPECT_TRUE(window.empty());
  EXPECT_FALSE(window.find(3, kNobody, false).claim) << "nobody needs it";
  ASSERT_TRUE(keep(window, 3));
  const auto found = window.find(3, kAnyone, false);
  ASSERT_TRUE(found.row);
  EXPECT_FALSE(found.claim);
  EXPECT_EQ(found.row->sample_index, 10);
  EXPECT_EQ(found.row->label, 3);
  EXPECT_EQ(window.used(), kRowCost);
}

TEST(RowWindow, SaysThatARowIsBeingMadeOrWaitsForIt) {
  auto window = window_of(10);
  auto making = window.find(5, kAnyone, false);
  ASSERT_TRUE(making.claim);
  EXPECT_TRUE(window.find(5, kAnyone, false).busy);
  auto waiting = std::async(std::launch::async, [&] { return window.find(5, kAnyone, true); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  std::move(*making.claim).done(1, 2);
  EXPECT_EQ(waiting.get().row->label, 2);
}

TEST(RowWindow, LetsAnotherMakeARowThatWasGivenUp) {
  auto window = window_of(10);
  auto making = std::make_optional(window.find(5, kAnyone, false));
  auto waiting =
      std::async(std::launch::async, [&] { return window.find(5, kAnyone, true).claim.has_value(); });
  making.reset();
  EXPECT_TRUE(waiting.get());
  EXPECT_TRUE(window.empty());
}

TEST(RowWindow, KnowsWhoElseNeedsARow) {
  auto window = window_of(10);
  EXPECT_FALSE(window.needed_by_others(100, {0, 0}));
  window.move(0, 3, 50);
  window.move(1, 0, 200);
  EXPECT_TRUE(window.needed_by_others(100, {1, ~0ULL}));
  EXPECT_TRUE(window.needed_by_others(50, {1, ~0ULL}));
  EXPECT_FALSE(window.needed_by_others(49, {1, ~0ULL})) << "it has passed that";
  EXPECT_FALSE(window.needed_by_others(100, {0, 1 << 3})) << "it gets the row with this batch";
  EXPECT_TRUE(window.needed_by_others(100, {0, 1 << 2}));
  EXPECT_TRUE(window.needed_by_others(200, {0, 1 << 3}));
  window.move(0, 3, std::nullopt);
  EXPECT_FALSE(window.needed_by_others(100, {1, ~0ULL}));
}

TEST(RowWindow, DropsRowsThatEveryReaderHasPassed) {
  auto window = window_of(100);
  window.move(0, 0, 10);
  window.move(1, 0, 0);
  for (std::uint64_t row = 0; row < 10; ++row) ASSERT_TRUE(keep(window, row));
  window.move(1, 0, 8);
  window.trim();
  EXPECT_FALSE(has(window, 7));
  EXPECT_TRUE(has(window, 8) && has(window, 9));
  const auto found = window.find(9, kNobody, false);
  window.move(1, 0, std::nullopt);
  window.trim();
  EXPECT_TRUE(window.empty());
  EXPECT_EQ(std::to_integer<int>(found.row->bytes[0]), 9) << "a reader may still copy it";
}

TEST(RowWindow, KeepsTheRowsThatAreNeededSoonest) {
  auto window = window_of(4);
  window.move(0, 0, 100);  // ahead
  window.move(1, 0, 0);    // 100 rows behind
  for (const std::uint64_t row : {20, 10, 30, 40}) ASSERT_TRUE(keep(window, row));
  EXPECT_FALSE(keep(window, 50)) << "it would be needed last";
  EXPECT_EQ(window.refused(), 1);
  EXPECT_TRUE(keep(window, 25));
  EXPECT_FALSE(has(window, 40));
  EXPECT_TRUE(has(window, 10) && has(window, 20) && has(window, 25) && has(window, 30));
}

TEST(RowWindow, CountsFromTheReaderThatIsNextBehindARow) {
  auto window = window_of(3, 3);
  window.move(0, 0, 1000);
  window.move(1, 0, 990);
  window.move(2, 0, 0);
  ASSERT_TRUE(keep(window, 995));  // needed in 5 rows
  ASSERT_TRUE(keep(window, 800));  // in 800
  ASSERT_TRUE(keep(window, 100));
  EXPECT_TRUE(keep(window, 300));
  EXPECT_TRUE(has(window, 995) && has(window, 100) && has(window, 300));
  EXPECT_FALSE(has(window, 800));
}

TEST(RowWindow, DoesNotCountTheLanesThatGetARowAnyway) {
  auto window = window_of(2);
  window.move(0, 0, 100);  // the lane that the new row is made for
  window.move(1, 0, 0);
  ASSERT_TRUE(keep(window, 50));
  ASSERT_TRUE(keep(window, 60));
  EXPECT_FALSE(keep(window, 103, {0, 1})) << "the other one needs it last";
  EXPECT_TRUE(has(window, 50) && has(window, 60));
}

/// A reader of stream 1 that begins at `row`, behind one of stream 0 at `ahead`.
void begin_late(RowWindow& window, std::uint64_t row, std::uint64_t ahead, std::uint32_t lane = 0) {
  window.move(0, 0, ahead);
  window.move(1, lane, row);
  window.begins_late(row);
}

TEST(RowWindow, KeepsPassedRowsForReadersThatMayBeginSoon) {
  auto window = window_of(100);
  EXPECT_FALSE(window.may_be_needed(20)) << "nobody has begun late";
  begin_late(window, 10, 50);
  EXPECT_FALSE(window.may_be_needed(9));
  EXPECT_TRUE(window.may_be_needed(10) && window.may_be_needed(89));
  EXPECT_FALSE(window.may_be_needed(90)) << "twice as far";
  for (const std::uint64_t row : {5, 10, 20, 30}) ASSERT_TRUE(keep(window, row));
  window.move(1, 0, 25);
  window.trim();
  EXPECT_FALSE(has(window, 5)) << "before the first row of those that may begin";
  EXPECT_TRUE(has(window, 10) && has(window, 20) && has(window, 30));
  EXPECT_EQ(window.needed(), 1);
  EXPECT_EQ(window.kept(), 3);
  EXPECT_EQ(window.used(), 3 * kRowCost);
  EXPECT_EQ(window.room(), 99) << "the others can be dropped";
  begin_late(window, 10, 50, 1);
  EXPECT_EQ(window.needed(), 3) << "at once";
  EXPECT_TRUE(has(window, 10) && has(window, 20));
}

/// Fills a window of four rows with rows that only readers may need that begin soon.
void fill_with_passed_rows(RowWindow& window) {
  begin_late(window, 0, 100);
  for (std::uint64_t row = 0; row < 4; ++row) ASSERT_TRUE(keep(window, row));
  window.move(1, 0, 50);
  window.trim();
  ASSERT_EQ(window.kept(), 4);
  ASSERT_EQ(window.needed(), 0);
}

TEST(RowWindow, DropsPassedRowsFirstAndThoseLastThatAreReadFirst) {
  auto window = window_of(4);
  ASSERT_NO_FATAL_FAILURE(fill_with_passed_rows(window));
  EXPECT_TRUE(keep(window, 60, {0, 1})) << "the client behind needs it";
  EXPECT_FALSE(has(window, 3));
  EXPECT_TRUE(has(window, 0) && has(window, 1) && has(window, 2) && has(window, 60));
  EXPECT_FALSE(keep(window, 49, {1, 1})) << "only clients that have not begun may need it";
  EXPECT_EQ(window.refused(), 0);
  EXPECT_LE(window.used(), window.budget());
}

TEST(RowWindow, DropsNoPassedRowThatAReaderNeedsAgain) {
  auto window = window_of(4);
  ASSERT_NO_FATAL_FAILURE(fill_with_passed_rows(window));
  window.move(1, 1, 0);  // it resumes there, and is not late; all four are not moved back yet
  EXPECT_FALSE(keep(window, 103, {0, 1})) << "it would be needed last";
  EXPECT_TRUE(has(window, 0) && has(window, 1) && has(window, 2) && has(window, 3));
}

TEST(RowWindow, DropsPassedRowsWhenNobodyElseHasBegunForLong) {
  auto window = window_of(100);
  begin_late(window, 0, 3);
  begin_late(window, 1, 4, 1);  // so up to row 7
  for (std::uint64_t row = 0; row < 10; ++row) ASSERT_TRUE(keep(window, row));
  window.move(0, 0, 50);
  window.move(1, 0, 6);
  window.move(1, 1, 6);
  window.trim();
  EXPECT_EQ(window.kept(), 10);
  window.move(1, 0, 7);
  window.move(1, 1, 7);
  window.trim();
  EXPECT_EQ(window.kept(), 3);
  EXPECT_FALSE(window.may_be_needed(4));
  begin_late(window, 8, 50, 1);
  EXPECT_FALSE(window.may_be_needed(4)) << "that was another set of jobs";
}

TEST(RowWindow, KeepsNoPassedRowsForASingleReader) {
  auto window = window_of(100);
  begin_late(window, 0, 5 * kPositions);
  EXPECT_FALSE(window.may_be_needed(2 * kPositions)) << "two epochs at most";
  ASSERT_TRUE(keep(window, 3));
  window.move(1, 0, 10);
  window.trim();
  EXPECT_TRUE(has(window, 3));
  window.move(1, 0, std::nullopt);
  window.trim();
  EXPECT_TRUE(window.empty());
  EXPECT_FALSE(window.may_be_needed(3));
}

TEST(RowWindow, GivesMemoryBackWhenClientsHaveCaughtUp) {
  auto window = window_of(1000);
  window.move(0, 0, 1000);
  window.move(1, 0, 0);
  for (std::uint64_t row = 0; row < 1000; ++row) ASSERT_TRUE(keep(window, row));
  EXPECT_EQ(window.used(), 1000 * kRowCost);
  window.move(1, 0, 999);
  window.trim();
  EXPECT_TRUE(has(window, 999));
  EXPECT_LE(window.used(), 65 * kRowCost);
  window.move(1, 0, 1000);
  window.trim();
  EXPECT_EQ(window.used(), 0);
}

TEST(RowWindow, GivesMemoryBackInSteps) {
  auto window = window_of(1000);
  window.move(0, 0, 1000);
  window.move(1, 0, 0);
  for (std::uint64_t row = 0; row < 1000; ++row) ASSERT_TRUE(keep(window, row));
  window.move(1, 0, 1000);
  window.trim(std::chrono::nanoseconds(1));
  EXPECT_GT(window.kept(), 0) << "there was no time for all";
  EXPECT_LT(window.kept(), 1000);
  window.trim();
  EXPECT_EQ(window.used(), 0);
}

TEST(RowWindow, NumbersNoEpochThatWouldMeetAnother) {
  const auto window = window_of(10);
  EXPECT_EQ(window.number(3, 7), 3 * kPositions + 7);
  EXPECT_FALSE(window.number(std::uint64_t{1} << 62, 0));
}

TEST(RowWindow, KeepsNothingWithoutRoom) {
  auto window = window_of(0);
  EXPECT_FALSE(keep(window, 1));
  EXPECT_EQ(window.refused(), 1);
}

TEST(RowWindow, GivesEachRowToAllWhoReadItAtOnce) {
  auto window = window_of(50, 4);
  std::atomic<int> made{0}, wrong{0};
  std::barrier together(4);  // else some would be further apart than the window
  std::vector<std::thread> threads;
  for (std::uint32_t stream = 0; stream < 4; ++stream) window.move(stream, 0, 0);
  window.move(0, 0, 1000);
  window.begins_late(0);  // so that rows move between those that are needed and those that may be
  window.move(0, 0, 0);
  std::atomic<bool> ended{false};
  std::thread ticks([&] {
    while (!ended) window.trim();
  });
  for (std::uint32_t stream = 0; stream < 4; ++stream)
    threads.emplace_back([&, stream] {
      for (std::uint64_t row = 0; row < 3000; ++row) {
        if (row % 25 == 0) together.arrive_and_wait();
        window.move(stream, 0, row);
        auto found = window.find(row, kAnyone, true);
        if (found.claim) {
          std::memset(found.claim->bytes(), static_cast<int>(row % 251), kRowBytes);
          std::move(*found.claim).done(row, 0);
          ++made;
        } else if (found.row) {
          for (std::size_t i = 0; i < kRowBytes; ++i)
            wrong += std::to_integer<std::uint64_t>(found.row->bytes[i]) != row % 251;
        }
      }
      window.move(stream, 0, std::nullopt);
    });
  for (auto& thread : threads) thread.join();
  ended = true;
  ticks.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(made, 3000) << "each once";
  window.trim();
  EXPECT_TRUE(window.empty());
}

}  // namespace
}  // namespace headrace::server::exec
