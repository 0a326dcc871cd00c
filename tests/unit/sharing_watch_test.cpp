// When the server says that jobs decode the same rows apart from each other.
#include "server/session/sharing_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::server::session {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSecond = 1'000'000'000;

/// Two jobs that receive 100 samples a second each.
class TwoJobs {
 public:
  /// `decoded`: samples a second. The last warning within `seconds`, if any.
  std::optional<std::string> run(int seconds, std::uint64_t decoded, std::uint64_t second_received = 100) {
    std::optional<std::string> last;
    for (int i = 0; i < seconds; ++i) {
      now_ += kSecond;
      figures_.decoded += decoded;
      figures_.jobs[0].granted += 100;
      figures_.jobs[1].granted += second_received;
      if (auto warning = watch_.check(now_, figures_)) {
        ++warnings_;
        last = std::move(warning);
      }
    }
    return last;
  }
  SharingWatch::Figures& figures() { return figures_; }
  [[nodiscard]] int warnings() const { return warnings_; }
  [[nodiscard]] std::optional<SharingWatch::Interval> last() const { return watch_.last_interval(); }
  [[nodiscard]] std::uint64_t decoded_again() const { return last().value().again; }
  [[nodiscard]] SharingWatch::Total total() const { return watch_.total(); }

 private:
  SharingWatch watch_{{"train"}, true};
  SharingWatch::Figures figures_{
      .ahead = 400,
      .window_bytes = 5'000'000,
      .jobs = {{.name = "early"}, {.name = "late", .behind = 80, .rows_behind = 80}}};
  std::uint64_t now_ = 0;
  int warnings_ = 0;
};

TEST(SharingWatch, SaysNothingWhileARowIsDecodedOnce) {
  TwoJobs jobs;
  EXPECT_FALSE(jobs.run(300, 100));
  EXPECT_FALSE(jobs.run(300, 130)) << "a little is decoded ahead, or again";
}

TEST(SharingWatch, WarnsOnceWhenJobsAreTooFarApart) {
  TwoJobs jobs;
  EXPECT_FALSE(jobs.run(30, 200)) << "not before 30 s have passed";
  const auto warning = jobs.run(300, 200);
  ASSERT_TRUE(warning);
  EXPECT_EQ(
      *warning,
      "stream `train`: samples are decoded more than once: 6000 in 30 s, of which no client was granted more "
      "than 3000, because the 2 clients are too far apart to share rows; `late` is 80 batches behind. To "
      "share more: start the jobs together (sharing.wait_for), set sharing.on_lag: wait, or attach late "
      "clients with Loader(join=\"now\"), which skips samples");
  EXPECT_EQ(jobs.warnings(), 1);
  EXPECT_FALSE(jobs.run(60, 100)) << "it has ended";
  EXPECT_TRUE(jobs.run(60, 200)) << "and begins again";
}

TEST(SharingWatch, WarnsIfASlowJobSharesNothingWithAFastOne) {
  TwoJobs jobs;
  EXPECT_FALSE(jobs.run(100, 115, 45)) << "a third of the slow one's samples";
  EXPECT_TRUE(jobs.run(100, 145, 45)) << "all of them: the sharing factor is 1.0";
}

TEST(SharingWatch, TellsWhatTheSkewOfTheLast30SecondsCost) {
  TwoJobs jobs;
  jobs.run(20, 200);
  EXPECT_FALSE(jobs.last()) << "not known yet";
  jobs.run(20, 200);
  EXPECT_EQ(jobs.decoded_again(), 3000U);
  EXPECT_EQ(jobs.last()->decoded, 6000U);
  EXPECT_EQ(jobs.last()->granted, 6000U);
  jobs.run(60, 100);
  EXPECT_EQ(jobs.decoded_again(), 0U);
  jobs.run(60, 100, 0);
  EXPECT_EQ(jobs.decoded_again(), 0U) << "a single active job";
  jobs.run(60, 200);
  EXPECT_EQ(jobs.decoded_again(), 3000U);
  EXPECT_GE(jobs.total().again, 6000U);
  EXPECT_LT(jobs.total().again, jobs.total().decoded);
}

TEST(SharingWatch, KeepsTheLastIntervalWhileJobsComeAndGo) {
  TwoJobs jobs;
  jobs.run(40, 200);
  const auto before = jobs.last();
  ASSERT_TRUE(before);
  EXPECT_EQ(before->end_ns, 31 * kSecond);
  for (int i = 0; i < 10; ++i) {
    jobs.figures().jobs[1].granted = 0;  // it was restarted
    jobs.run(20, 100);
    ASSERT_TRUE(jobs.last());
    EXPECT_EQ(jobs.last()->end_ns, before->end_ns);
    EXPECT_EQ(jobs.last()->decoded, before->decoded);
  }
  jobs.run(20, 100);
  EXPECT_EQ(jobs.last()->decoded, 3000U) << "both stayed for 30 s";
}

TEST(SharingWatch, KnowsNoIntervalWithoutJobs) {
  SharingWatch watch({"train"}, true);
  for (std::uint64_t second = 1000; second <= 1100; ++second) watch.check(second * kSecond, {});
  EXPECT_FALSE(watch.last_interval());
}

TEST(SharingWatch, DoesNotCountSamplesDecodedAheadAsDecodedAgain) {
  TwoJobs jobs;
  jobs.run(60, 110);
  EXPECT_EQ(jobs.decoded_again(), 0U);
  jobs.run(60, 120);
  EXPECT_EQ(jobs.decoded_again(), 200U);
}

TEST(SharingWatch, NamesTheJobFurthestBehindInSamples) {
  TwoJobs jobs;
  jobs.figures().jobs[0] = {.name = "large", .behind = 20, .rows_behind = 5120};
  jobs.figures().jobs[1].rows_behind = 80 * 32;
  const auto warning = jobs.run(60, 200);
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("; `large` is 20 batches behind. To"));
}

TEST(SharingWatch, ReportsThatAWindowOf0BKeepsNoRows) {
  TwoJobs jobs;
  jobs.figures().window_bytes.reset();
  const auto warning = jobs.run(60, 200);
  ASSERT_TRUE(warning);
  EXPECT_THAT(
      *warning,
      HasSubstr("; no rows are kept for others (sharing.window: 0B). To share more: set sharing.window, "));
}

TEST(SharingWatch, KnowsWhenTheForemostJobWasWhereAnotherIs) {
  SharingWatch watch({"train"}, true);
  EXPECT_FALSE(watch.seconds_since(0, 5)) << "nothing is known yet";
  SharingWatch::Figures figures;
  for (std::uint64_t second = 0; second <= 20; ++second) {
    figures.foremost = 50 + (second < 10 ? second * 100 : 1000);  // it pauses after 10 s
    watch.check(second * kSecond, figures);
  }
  const auto ago = [&](std::uint64_t row) { return watch.seconds_since(20 * kSecond, row); };
  EXPECT_EQ(ago(1050), 0) << "there it is";
  EXPECT_EQ(ago(2000), 0) << "ahead of the last check";
  EXPECT_EQ(ago(1000), 10) << "it went on when it paused";
  EXPECT_EQ(ago(660), 13) << "it was beyond after 7 s";
  EXPECT_EQ(ago(50), 19);
  EXPECT_FALSE(ago(49)) << "it was never there";
  figures.foremost = 900;  // it left; another one is foremost
  watch.check(21 * kSecond, figures);
  EXPECT_FALSE(watch.seconds_since(21 * kSecond, 700)) << "when the other one was there is not known";
}

TEST(SharingWatch, KnowsWhereTheForemostJobBegan) {
  SharingWatch watch({"train"}, true);
  SharingWatch::Figures figures;
  figures.foremost = 50'064;
  figures.jobs = {{.name = "resumed", .granted = 64}, {.name = "fresh", .granted = 32}};
  watch.check(1 * kSecond, figures);
  EXPECT_FALSE(watch.seconds_since(3 * kSecond, 10)) << "it resumed at row 50,000";
  EXPECT_EQ(watch.seconds_since(3 * kSecond, 50'010), 2) << "it passed this row before the first check";
}

TEST(SharingWatch, KnowsAtLeastHowLongAgoWhatItHasForgottenWas) {
  SharingWatch watch({"train"}, true);
  SharingWatch::Figures figures;
  for (std::uint64_t second = 0; second <= 5000; ++second) {
    figures.foremost = second;
    watch.check(second * kSecond, figures);
  }
  for (std::uint64_t second = 5001; second <= 9000; ++second)
    watch.check(second * kSecond, figures);  // it pauses
  const auto forgotten = watch.seconds_since(9000 * kSecond, 3);
  ASSERT_TRUE(forgotten);
  EXPECT_GE(*forgotten, 4000 + 2000);
  EXPECT_LE(*forgotten, 9000 - 3);
  const auto remembered = watch.seconds_since(9000 * kSecond, 4990);
  ASSERT_TRUE(remembered);
  EXPECT_NEAR(*remembered, 9000 - 4991, 1e-6) << "a pause displaces nothing";
  EXPECT_EQ(watch.seconds_since(1 * kSecond, 4990), 0) << "a check may be later than the caller's time";
}

TEST(SharingWatch, NamesAFullWindow) {
  TwoJobs jobs;
  jobs.run(1, 200);
  jobs.figures().refused = 7;
  const auto warning = jobs.run(60, 200);
  ASSERT_TRUE(warning);
  EXPECT_THAT(
      *warning,
      HasSubstr("; the window (5.0 MB) is full. To share more: raise sharing.window, start the jobs"));
}

TEST(SharingWatch, TellsHowLargeAWindowWouldDo) {
  TwoJobs jobs;
  jobs.figures().row_bytes = 100'000;
  jobs.run(1, 200);
  jobs.figures().refused = 7;
  const auto warning = jobs.run(60, 200);
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("raise sharing.window to 48.0 MB, start")) << "80 + 400 rows";
}

TEST(SharingWatch, DoesNotCountIdleJobs) {
  TwoJobs jobs;
  EXPECT_FALSE(jobs.run(300, 200, 0)) << "a single active job cannot share";
}

TEST(SharingWatch, BeginsAnewWhenAJobComesOrRestarts) {
  TwoJobs jobs;
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(jobs.run(20, 200));
    jobs.figures().jobs[1].granted = 0;
  }
}

}  // namespace
}  // namespace headrace::server::session
