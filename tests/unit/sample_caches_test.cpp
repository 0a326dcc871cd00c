// Caches of several fields and of several sources.
#include "server/cache/sample_caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <sstream>
#include <thread>

namespace headrace::testing {
namespace {

using server::cache::Arena;
using server::cache::Piece;
using server::cache::SampleCache;
using server::cache::SampleCaches;
using ::testing::HasSubstr;

class Caches : public ::testing::Test {
 protected:
  std::shared_ptr<SampleCache> cache(std::uint64_t samples = 4) {
    return std::make_shared<SampleCache>(arena_, samples, std::chrono::hours(1));
  }
  [[nodiscard]] Arena::Counts counts() const { return arena_->counts(); }

  std::shared_ptr<Arena> arena_ = Arena::create("source `s`, cache.decoded", 1 << 20).value();
  const std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(80, 7);
  const Piece piece_{bytes_, {}, {}};
  std::vector<const Piece*> found_;
};

TEST_F(Caches, CountASampleOnceHoweverManyFieldsItHas) {
  const SampleCaches caches({{0, {cache(), cache(), cache()}}});
  SampleCaches::Claims claims;
  EXPECT_FALSE(caches.find(2, found_));
  EXPECT_FALSE(caches.lookup(2, found_, claims));
  EXPECT_EQ(claims.all().size(), 3U);
  claims.admit(std::vector<const Piece*>(3, &piece_));
  EXPECT_TRUE(caches.holds(2));
  EXPECT_TRUE(caches.find(2, found_));
  ASSERT_EQ(found_.size(), 3U);
  EXPECT_EQ(found_[1]->bytes.size(), 80U);
  EXPECT_EQ(counts().samples, 1U);
  EXPECT_EQ(counts().misses, 1U);
  EXPECT_EQ(counts().hits, 1U);
}

TEST_F(Caches, GiveTheFieldsThatAreKeptAndClaimsOnTheOthers) {
  const auto shared = cache();
  const SampleCaches one({{0, {shared}}}), both({{0, {cache(), shared}}});
  SampleCaches::Claims first, second, third;
  EXPECT_FALSE(one.lookup(0, found_, first));
  first.admit(std::vector{&piece_});
  EXPECT_FALSE(both.lookup(0, found_, second));
  ASSERT_EQ(second.all().size(), 1U);
  EXPECT_EQ(second.all()[0].field, 0U);
  EXPECT_EQ(found_[0], nullptr);
  EXPECT_NE(found_[1], nullptr);
  second.admit(std::vector<const Piece*>{nullptr, nullptr});  // not to be kept
  EXPECT_FALSE(both.lookup(0, found_, third));
  EXPECT_TRUE(third.empty()) << "a refused field is never kept";
  EXPECT_EQ(counts().samples, 1U);
}

TEST_F(Caches, WaitForAFieldThatAnotherFillsBeforeTheyClaimOne) {
  const auto free = cache(), filling = cache();
  auto held = filling->lookup(1);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::move(*held.claim).admit({&piece_, 1});
  });
  SampleCaches::Claims claims;
  EXPECT_FALSE(SampleCaches({{0, {free, filling}}}).lookup(1, found_, claims));
  other.join();
  ASSERT_EQ(claims.all().size(), 1U);
  EXPECT_EQ(claims.all()[0].field, 0U);
  EXPECT_NE(found_[1], nullptr);
}

TEST_F(Caches, DoNotWaitForeverForAFieldThatAnotherFills) {
  const auto free = cache();
  const auto filling = std::make_shared<SampleCache>(arena_, 4, std::chrono::milliseconds(5));
  const auto held = filling->lookup(1);
  SampleCaches::Claims claims;
  EXPECT_FALSE(SampleCaches({{0, {free, filling}}}).lookup(1, found_, claims));
  EXPECT_EQ(claims.all().size(), 1U);
  EXPECT_EQ(found_[1], nullptr);
}

TEST_F(Caches, LetAnotherStreamFillAFieldIfTheSampleIsBadInThisOne) {
  const auto good = cache(), broken = cache();
  const SampleCaches both({{0, {good, broken}}});
  SampleCaches::Claims claims;
  EXPECT_FALSE(both.lookup(3, found_, claims));
  claims.refuse(std::vector<const Piece*>{&piece_, nullptr});
  EXPECT_TRUE(good->lookup(3).claim);
  EXPECT_FALSE(broken->lookup(3).claim) << "it is never kept";
  EXPECT_EQ(counts().samples, 0U);
}

TEST_F(Caches, AreFilledOnceByThreadsOfStreamsWithDifferentFields) {
  constexpr std::uint64_t kSamples = 300;
  const auto a = cache(kSamples), b = cache(kSamples);
  const SampleCaches streams[] = {SampleCaches({{0, {a, b}}}), SampleCaches({{0, {b, a}}}),
                                  SampleCaches({{0, {a}}})};
  std::atomic<std::uint64_t> filled{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const SampleCaches& mine = streams[t % 3];
      std::vector<const Piece*> found;
      for (std::uint64_t i = 0; i < kSamples; ++i) {
        SampleCaches::Claims claims;
        if (mine.lookup(i, found, claims) || claims.empty()) continue;
        filled += claims.all().size();
        claims.admit(std::vector<const Piece*>(mine.fields(), &piece_));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(filled, 2 * kSamples);
  for (std::uint64_t i = 0; i < kSamples; ++i) EXPECT_TRUE(streams[0].holds(i)) << i;
}

TEST_F(Caches, CountEachLookupAndEachSampleAtHalfCapacity) {
  constexpr std::uint64_t kSamples = 400;
  arena_ = Arena::create("a", kSamples / 2 * Arena::rounded(sizeof(Piece) + bytes_.size())).value();
  const SampleCaches caches({{0, {cache(kSamples)}}});
  std::uint64_t hits = 0;
  for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      SampleCaches::Claims claims;
      if (!caches.lookup(i, found_, claims) && !claims.empty()) claims.admit(std::vector{&piece_});
    }
    EXPECT_EQ(counts().samples, kSamples / 2);
    EXPECT_EQ(counts().hits - hits, epoch == 0 ? 0 : kSamples / 2) << "epoch " << epoch;
    hits = counts().hits;
  }
  EXPECT_EQ(counts().hits + counts().misses, 6 * kSamples);
}

TEST_F(Caches, CountTheLookupsOfManyThreads) {
  constexpr std::uint64_t kSamples = 300, kThreads = 8;
  const SampleCaches caches({{0, {cache(kSamples)}}});
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<const Piece*> found;
      for (std::uint64_t i = 0; i < kSamples; ++i) {
        SampleCaches::Claims claims;
        if (!caches.lookup(i, found, claims)) claims.admit(std::vector{&piece_});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts().misses, kSamples);
  EXPECT_EQ(counts().hits, kSamples * kThreads - kSamples);
  EXPECT_EQ(counts().samples, kSamples);
}

TEST_F(Caches, AllowASourceWithoutACache) {
  const SampleCaches caches({{0, {cache(2)}}, {2, {}}, {5, {cache(1)}}});
  for (const std::uint64_t index : {0, 1, 2, 4, 5}) {
    SampleCaches::Claims claims;
    EXPECT_FALSE(caches.lookup(index, found_, claims));
    EXPECT_EQ(!claims.empty(), index < 2 || index == 5) << index;
    if (!claims.empty()) claims.admit(std::vector{&piece_});
    EXPECT_EQ(caches.holds(index), index < 2 || index == 5) << index;
  }
  EXPECT_EQ(counts().misses, 3U) << "a source without a cache counts nothing";
  EXPECT_EQ(counts().samples, 3U);
}

TEST_F(Caches, SayOnceInTheLogThatTheyKeepNothing) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  arena_ = Arena::create("source `s`, cache.decoded", 64).value();
  const SampleCaches caches({{0, {cache(40), cache(40)}}});
  for (std::uint64_t i = 0; i < 40; ++i) {
    SampleCaches::Claims claims;
    EXPECT_FALSE(caches.lookup(i, found_, claims));
    claims.admit(std::vector<const Piece*>(2, &piece_));
  }
  spdlog::set_default_logger(before);
  const std::string text = log.str();
  EXPECT_THAT(text,
              HasSubstr("source `s`, cache.decoded: none of the first 16 samples could be kept: they are "
                        "larger than its 64 bytes, or bad"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

}  // namespace
}  // namespace headrace::testing
