// Caches that are filled once, never evicted, and used to the last byte; read by one thread and by many.
#include "server/cache/sample_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/sampler/sampler.h"

namespace headrace::server::cache {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

constexpr auto kForever = std::chrono::hours(1);

std::shared_ptr<Arena> arena_of(std::uint64_t budget) {
  return Arena::create("source `s`, cache.decoded", budget).value();
}

/// A sample of one piece whose bytes say which one it is.
Bytes content(std::uint64_t index, std::size_t size = 80) {
  Bytes bytes(size);
  std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(index * 7));
  return bytes;
}

/// The bytes that a sample of content() occupies.
std::uint64_t cost(std::size_t size = 80) {
  return (sizeof(Piece) + size + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

bool fill(SampleCache::Claim claim, std::uint64_t index) {
  const Bytes bytes = content(index);
  const Piece piece{bytes, {4, 5, 1, true}, {6, 7}};
  return std::move(claim).admit({&piece, 1});
}

void expect_content(std::span<const Piece> pieces, std::uint64_t index) {
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(Bytes(pieces[0].bytes.begin(), pieces[0].bytes.end()), content(index));
  EXPECT_EQ(pieces[0].pixels.height, 5);
  EXPECT_TRUE(pieces[0].pixels.planar);
  EXPECT_EQ(pieces[0].base, (decode::ImageSize{6, 7}));
}

TEST(Arena, IsFullToTheLastByte) {
  const auto arena = arena_of(4 * 64);
  std::byte* const first = arena->allocate(64);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(arena->allocate(65), first + 64);
  EXPECT_EQ(arena->left(), 64U);
  EXPECT_EQ(arena->allocate(65), nullptr);
  EXPECT_EQ(arena->allocate(1), first + 192) << "a smaller one still fits";
  EXPECT_EQ(arena->left(), 0U);
  EXPECT_EQ(arena->allocate(1), nullptr);
  EXPECT_EQ(arena->used(), 4U * 64);
}

TEST(Arena, RefusesBudgetsOfNothingAndOfMoreThanThereAreAddresses) {
  const auto none = Arena::create("source `s`, cache.encoded", 63);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kConfigInvalid);
  EXPECT_THAT(none.error().message, HasSubstr("source `s`, cache.encoded: a budget below 64 bytes"));
  const auto vast = Arena::create("source `s`, cache.encoded", std::uint64_t{1} << 60);
  ASSERT_FALSE(vast);
  EXPECT_EQ(vast.error().code, ErrorCode::kNotEnoughMemory);
  EXPECT_THAT(vast.error().message, HasSubstr("no address space for 1152921504606846976 bytes"));
}

/// The bytes of this process that are on huge pages.
std::size_t huge_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;)
    if (std::size_t kib = 0; word == "AnonHugePages:" && file >> kib) return kib * 1024;
  return 0;
}

TEST(Arena, UsesHugePagesIfTheKernelHasThem) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t at_first = huge_bytes();
  void* const own =
      ::mmap(nullptr, 3 * kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(own, MAP_FAILED);
  ::madvise(own, 3 * kHugePage, MADV_HUGEPAGE);
  std::memset(own, 1, 3 * kHugePage);
  const bool has_them = huge_bytes() >= at_first + 2 * kHugePage;
  ::munmap(own, 3 * kHugePage);
  if (!has_them) GTEST_SKIP() << "this kernel provides no huge pages";
  const std::size_t before = huge_bytes();
  const auto arena = arena_of(9 * kHugePage / 2);  // at least three whole huge pages, wherever it begins
  constexpr std::size_t kPiece = 100'003;
  std::array<std::vector<std::byte*>, 2> pieces;
  const auto fill = [&](std::size_t mine) {
    while (std::byte* const piece = arena->allocate(kPiece)) {
      std::memset(piece, static_cast<int>(pieces[mine].size() % 251), kPiece);
      pieces[mine].push_back(piece);
    }
  };
  std::thread other(fill, 0);
  fill(1);
  other.join();
  EXPECT_GE(huge_bytes(), before + 2 * kHugePage) << "of three: one may be unavailable";
  for (const auto& of : pieces)
    for (std::size_t i = 0; i < of.size(); ++i)
      EXPECT_TRUE(std::all_of(of[i], of[i] + kPiece,
                              [&](std::byte b) { return b == static_cast<std::byte>(i % 251); }))
          << "piece " << i;
}

TEST(SampleCache, GivesWhatWasAdmittedAlwaysFromTheSameAddress) {
  const auto arena = arena_of(1 << 20);
  SampleCache cache(arena, 10);
  auto found = cache.lookup(3);
  EXPECT_TRUE(found.pieces.empty());
  ASSERT_TRUE(found.claim);
  EXPECT_TRUE(fill(std::move(*found.claim), 3));
  const auto again = cache.lookup(3);
  EXPECT_FALSE(again.claim);
  expect_content(again.pieces, 3);
  EXPECT_EQ(cache.lookup(3).pieces.data(), again.pieces.data());
  EXPECT_EQ(arena->used(), cost());
}

TEST(SampleCache, KeepsSeveralPiecesAlsoEmptyOnes) {
  SampleCache cache(arena_of(1 << 20), 2);
  const Bytes first = content(1, 5), last = content(2, 200);
  const std::vector<Piece> pieces{{first, {}, {}}, {{}, {}, {}}, {last, {}, {}}};
  EXPECT_TRUE(std::move(*cache.lookup(1).claim).admit(pieces));
  const auto found = cache.lookup(1);
  ASSERT_EQ(found.pieces.size(), 3U);
  EXPECT_EQ(Bytes(found.pieces[0].bytes.begin(), found.pieces[0].bytes.end()), first);
  EXPECT_TRUE(found.pieces[1].bytes.empty());
  EXPECT_EQ(Bytes(found.pieces[2].bytes.begin(), found.pieces[2].bytes.end()), last);
}

TEST(SampleCache, AsksAgainAfterADroppedClaimAndNeverAfterARefusedOne) {
  const auto arena = arena_of(1 << 20);
  SampleCache cache(arena, 2);
  EXPECT_TRUE(cache.lookup(0).claim) << "dropped at once: reading failed";
  auto found = cache.lookup(0);
  ASSERT_TRUE(found.claim);
  std::move(*found.claim).refuse();
  for (int i = 0; i < 3; ++i) {
    const auto refused = cache.lookup(0);
    EXPECT_FALSE(refused.claim);
    EXPECT_TRUE(refused.pieces.empty());
  }
  EXPECT_EQ(arena->used(), 0U);
}

TEST(SampleCache, AtHalfCapacityHitsHalfOfEveryReshuffledEpoch) {
  constexpr std::uint64_t kSamples = 400;
  const auto arena = arena_of(kSamples / 2 * cost());
  SampleCache cache(arena, kSamples);
  const auto sampler = sampler::make_shuffled(kSamples, 11);
  for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
    const auto order = sampler->order(epoch);
    std::uint64_t hits = 0;
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      auto found = cache.lookup(order(i));
      if (!found.pieces.empty()) {
        ++hits;
        expect_content(found.pieces, order(i));
      }
      if (found.claim) fill(std::move(*found.claim), order(i));
    }
    EXPECT_EQ(arena->left(), 0U) << "exactly full after the first epoch";
    EXPECT_EQ(hits, epoch == 0 ? 0 : kSamples / 2) << "epoch " << epoch;
  }
}

TEST(SampleCache, RewritesAPieceWithinTheCapacityThatItWasAdmittedWith) {
  SampleCache cache(arena_of(1 << 12), 2);
  const Bytes first = content(0, 40), second = content(1, 50);
  const Piece pieces[] = {{first, {}, {}}, {second, {}, {}}};
  const std::uint64_t room[] = {60, 10};  // a room below the size counts as the size
  ASSERT_TRUE(std::move(*cache.lookup(0).claim).admit(pieces, room));
  const auto now = [&](std::size_t i) {
    const auto bytes = cache.kept(0)[i].bytes;
    return Bytes(bytes.begin(), bytes.end());
  };
  EXPECT_FALSE(cache.rewrite(0, 0, content(2, 61)));
  EXPECT_EQ(now(0), first);
  EXPECT_TRUE(cache.rewrite(0, 0, content(2, 60)));
  EXPECT_EQ(now(0), content(2, 60));
  EXPECT_EQ(now(1), second);
  EXPECT_FALSE(cache.rewrite(0, 1, content(3, 51)));
  EXPECT_TRUE(cache.rewrite(0, 1, content(3, 30)));
  EXPECT_TRUE(cache.rewrite(0, 1, content(4, 50))) << "the capacity stays";
  EXPECT_EQ(now(0), content(2, 60));
  EXPECT_EQ(now(1), content(4, 50));
}

TEST(SampleCache, ThatSeveralShareFillsOneBudget) {
  const auto arena = arena_of(3 * cost());
  SampleCache one(arena, 2), other(arena, 2);
  EXPECT_TRUE(fill(*one.lookup(0).claim, 0));
  EXPECT_TRUE(fill(*other.lookup(0).claim, 5));
  EXPECT_EQ(arena->left(), cost());
  EXPECT_TRUE(fill(*one.lookup(1).claim, 1));
  EXPECT_EQ(arena->left(), 0U);
  EXPECT_FALSE(fill(*other.lookup(1).claim, 6));
  expect_content(one.lookup(0).pieces, 0);
  expect_content(other.lookup(0).pieces, 5);
}

TEST(SampleCache, DoesNotWaitForAnotherWorkerIfAskedNotTo) {
  SampleCache cache(arena_of(1 << 20), 1, kForever);
  const auto held = cache.lookup(0);
  ASSERT_TRUE(held.claim);
  const auto found = cache.lookup(0, SampleCache::IfFilling::kDoNotWait);
  EXPECT_TRUE(found.pieces.empty());
  EXPECT_FALSE(found.claim);
}

TEST(SampleCache, IsFilledOnceForEachSampleByManyThreads) {
  constexpr std::uint64_t kSamples = 300, kThreads = 8, kEpochs = 4;
  const auto arena = arena_of(kSamples * cost());
  SampleCache cache(arena, kSamples, kForever);
  std::vector<std::atomic<int>> fills(kSamples);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::uint64_t> order(kSamples);
      std::iota(order.begin(), order.end(), 0);
      std::mt19937 random(static_cast<unsigned>(t / 4));  // four threads meet at every sample
      for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
        std::shuffle(order.begin(), order.end(), random);
        for (const std::uint64_t i : order) {
          auto found = cache.lookup(i);
          if (!found.pieces.empty()) {
            expect_content(found.pieces, i);
          } else {
            ++fills[i];
            ASSERT_TRUE(found.claim) << "a reader must wait while another one fills";
            EXPECT_TRUE(fill(std::move(*found.claim), i));
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : fills) EXPECT_EQ(count, 1);
  EXPECT_EQ(arena->left(), 0U);
}

TEST(SampleCache, WaitsForTheOneThatFillsButNotForever) {
  const auto arena = arena_of(1 << 20);
  SampleCache patient(arena, 1, kForever), hasty(arena, 1, std::chrono::milliseconds(5));
  auto claim = patient.lookup(0).claim;
  std::thread waiting([&] { expect_content(patient.lookup(0).pieces, 0); });
  EXPECT_TRUE(fill(std::move(*claim), 0));
  waiting.join();

  const auto held = hasty.lookup(0).claim;
  const auto alone = hasty.lookup(0);
  EXPECT_TRUE(alone.pieces.empty());
  EXPECT_FALSE(alone.claim) << "its own result is not kept";
}

TEST(SampleCache, LetsOneThatWaitedFillWhenTheFirstGaveUp) {
  SampleCache cache(arena_of(1 << 20), 1, kForever);
  std::optional<SampleCache::Found> first(cache.lookup(0));
  std::thread waiting([&] {
    auto found = cache.lookup(0);
    ASSERT_TRUE(found.claim);
    EXPECT_TRUE(fill(std::move(*found.claim), 0));
  });
  first.reset();
  waiting.join();
  expect_content(cache.lookup(0).pieces, 0);
}

}  // namespace
}  // namespace headrace::server::cache
