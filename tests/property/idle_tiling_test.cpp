// Workers whose rings are full tile the images in a cache: batches are the same, and do not wait for that.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/cache/encoded_source.h"
#include "server/source/formats/image_folder.h"
#include "server/transform/ops/ops.h"
#include "tests/engine_fixture.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

using namespace server::transform;
using server::cache::Arena;
using server::cache::IdleTiler;
using server::source::Source;

constexpr std::uint64_t kSamples = 64;

template <class F>
bool comes_true(F&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class IdleEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      const auto file = pixels::make_jpeg(
          {.width = 200, .height = 150, .horizontal = i % 2 == 0 ? 1 : 2, .vertical = 1, .seed = i});
      folder_.put("cat/" + std::to_string(1000 + i) + ".jpg", std::string(file.begin(), file.end()));
    }
    files_ = server::source::open_image_folder(folder_.path()).value();
  }
  static std::unique_ptr<Engine> start(const std::shared_ptr<const Source>& source, unsigned threads,
                                       std::vector<std::shared_ptr<IdleTiler>> tilers = {},
                                       std::shared_ptr<server::io::ReadAhead> reads = nullptr) {
    StreamPlan plan;
    plan.chain.transforms = {make_op("random_resized_crop", {{"size", {48, 48}}}),
                             make_op("random_horizontal_flip")};
    StreamSetup setup;
    setup.maker = make_samples(source, {.seed = 7, .read_ahead = std::move(reads)}, plan);
    setup.info = {.name = "s", .samples = kSamples, .batch_size = 8, .fields = setup.maker->fields()};
    setup.ledger = {.lanes = 2, .max_leases = 3, .prefetch = 4};
    std::vector<StreamSetup> setups;
    setups.push_back(std::move(setup));
    return start_engine(std::move(setups), threads, std::move(tilers));
  }
  /// `count` more batches.
  void read(Engine& engine, RingClient& client, std::uint64_t count, Digest& seen) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const auto grant = client.next();
      slow_ += std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(400) ? 1 : 0;
      ASSERT_TRUE(grant) << engine.stream(0).failure().message;
      seen.add_batch(client.reader(), *grant);
      client.reader().ack(*grant);
    }
  }

  TempFolder folder_;
  std::shared_ptr<const Source> files_;
  int slow_ = 0;  ///< batches for which no worker was woken: workers check by themselves every 500 ms
};

TEST_F(IdleEngine, TilesWhatIsCachedOnceItsRingsAreFullAndThenSleeps) {
  constexpr std::uint64_t kEpoch = kSamples / 8;
  Digest expected;
  {
    const auto engine = start(files_, 2);
    RingClient client(*engine, "s", "c");
    read(*engine, client, 3 * kEpoch, expected);
  }
  for (const unsigned threads : {1U, 2U, 5U}) {
    const auto arena = Arena::create("a", 64 << 20).value();
    const auto kept = server::cache::keep_tiled(files_, arena);
    const auto engine = start(kept.source, threads, {kept.tiler});
    RingClient client(*engine, "s", "c");
    Digest seen;
    // A slow client: images are tiled between its batches.
    read(*engine, client, kEpoch / 2, seen);
    ASSERT_TRUE(comes_true([&] { return kept.tiler->counts().waiting == 0; })) << "rings are full";
    EXPECT_GE(kept.tiler->counts().tiled, kSamples / 2);
    read(*engine, client, kEpoch, seen);
    ASSERT_TRUE(comes_true([&] { return kept.tiler->counts().tiled == kSamples; }));
    const std::uint64_t used = arena->used();
    EXPECT_TRUE(comes_to_rest()) << "workers sleep again";
    read(*engine, client, 2 * kEpoch - kEpoch / 2, seen);
    EXPECT_EQ(seen.value(), expected.value()) << threads << " threads";
    EXPECT_EQ(arena->used(), used);
    EXPECT_EQ(arena->counts().samples, kSamples);
    EXPECT_LE(slow_, 3);
  }
}

TEST_F(IdleEngine, ServesAClientThatComesWhileItTiles) {
  const auto kept = server::cache::keep_tiled(files_, Arena::create("a", 64 << 20).value());
  const auto engine = start(kept.source, 2, {kept.tiler});
  RingClient first(*engine, "s", "first");
  Digest ignored;
  read(*engine, first, 2, ignored);
  Digest seen, expected;
  {
    RingClient second(*engine, "s", "second");
    read(*engine, second, 2 * kSamples / 8, seen);
  }
  const auto plain = start(files_, 2);
  RingClient only(*plain, "s", "only");
  read(*plain, only, 2 * kSamples / 8, expected);
  EXPECT_EQ(seen.value(), expected.value());
  EXPECT_LE(slow_, 3);
  EXPECT_TRUE(comes_true([&] { return kept.tiler->counts().waiting == 0; }));
}

TEST_F(IdleEngine, ServesTheSameThroughReadingAhead) {
  Digest expected, seen;
  {
    const auto engine = start(files_, 2);
    RingClient client(*engine, "s", "c");
    read(*engine, client, 4 * kSamples / 8, expected);
  }
  const auto kept = server::cache::keep_tiled(files_, Arena::create("a", 64 << 20).value());
  const auto reads = std::make_shared<server::io::ReadAhead>(
      std::make_shared<server::io::ReadPool>("s", 4), kept.source,
      server::io::ReadAhead::Options{.ahead = 24, .samples = 200, .bytes = 4 << 20});
  const auto engine = start(kept.source, 3, {kept.tiler}, reads);
  RingClient client(*engine, "s", "c");
  read(*engine, client, kSamples / 8, seen);
  // Samples that were read ahead by now were read before they were tiled.
  ASSERT_TRUE(comes_true([&] { return kept.tiler->counts().tiled == kSamples; }));
  read(*engine, client, 3 * kSamples / 8, seen);
  EXPECT_EQ(seen.value(), expected.value());
}

TEST_F(IdleEngine, MakesNoTilesWhileBatchesAreWanted) {
  const auto kept = server::cache::keep_tiled(files_, Arena::create("a", 64 << 20).value());
  // One worker, because of two one might find the ring full while the other one has no core.
  const auto engine = start(kept.source, 1, {kept.tiler});
  // Its batches are acked as they come, so there is always one to make.
  engine->with(0, [](Stream& stream) { return stream.lanes().open_sink().value(); });
  ASSERT_TRUE(comes_true([&] { return engine->totals(0).samples > 20 * kSamples; }));
  EXPECT_EQ(kept.tiler->counts().tiled, 0U);
  EXPECT_EQ(kept.tiler->counts().waiting, kSamples);
}

}  // namespace
}  // namespace headrace::testing
