// The cache `decoded`: a stream has the same rows with and without it, for every kind of chain, and samples
// that fit are decoded once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>

#include "server/pictures/png_file.h"
#include "server/source/formats/image_folder.h"
#include "server/source/formats/manifest.h"
#include "server/source/formats/paired_folders.h"
#include "server/transform/ops/ops.h"
#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

using namespace server::transform;
using server::cache::Arena;
using server::cache::SampleCaches;
using server::exec::LooseRow;
using server::exec::RowScratch;
using server::source::Sample;
using server::source::Source;
using ::testing::HasSubstr;

constexpr std::uint64_t kPlenty = 64 << 20;

class CountingReads final : public ForwardingSource {
 public:
  using ForwardingSource::ForwardingSource;
  Result<void> read(std::uint64_t index, Sample& out) const override {
    ++reads;
    return ForwardingSource::read(index, out);
  }
  mutable std::atomic<std::uint64_t> reads{0};
};

std::string text(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string jpeg(std::uint32_t seed, int width, int height) {
  return text(pixels::make_jpeg({.width = width, .height = height, .seed = seed}));
}

/// One stream's rows, made one after the other.
class Rows {
 public:
  Rows(const std::shared_ptr<const Source>& source, const StreamPlan& plan, const SampleCaches& caches = {})
      : maker_(make_samples(source, {.seed = 9, .max_bad = 1, .decoded = caches}, plan)) {}

  /// The content of an epoch: values, marks and reasons.
  std::vector<std::string> epoch(std::uint64_t number) {
    std::vector<std::string> rows;
    rows.reserve(maker_->size());
    LooseRow row(*maker_);
    for (std::uint64_t i = 0; i < maker_->size(); ++i) {
      const auto made = maker_->make(maker_->order(number), number, i, row.fields, scratch_, counters_);
      EXPECT_TRUE(made) << made.error().message;
      if (!made) break;
      rows.push_back(row.bytes() + " " + std::to_string(made->sample_index) + " " + made->because);
    }
    return rows;
  }
  [[nodiscard]] std::uint64_t decoded() const {
    server::metrics::StreamTotals totals;
    totals.add(counters_);
    const auto& buckets = totals.stages[static_cast<std::size_t>(server::metrics::Stage::kDecode)].buckets;
    return std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0});
  }
  [[nodiscard]] std::uint64_t errors(BadReason reason) const {
    return counters_.errors[static_cast<std::size_t>(reason)].get();
  }
  [[nodiscard]] const SampleMaker& maker() const { return *maker_; }

 private:
  std::shared_ptr<const SampleMaker> maker_;
  RowScratch scratch_;
  server::metrics::StreamCounters counters_;
};

StreamPlan plan_of(std::vector<Transform> transforms, Output output = {}) {
  StreamPlan plan;
  plan.chain.transforms = std::move(transforms);
  plan.chain.output = output;
  return plan;
}

const Transform kNormalize =
    make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}});

class DecodedCache : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < 24; ++i)
      folder_.put((i % 2 ? "cat/" : "dog/") + std::to_string(100 + i) + ".jpg",
                  jpeg(i, 40 + static_cast<int>(i % 5) * 13, 70 - static_cast<int>(i % 7) * 4));
  }
  void add_bad_files() {
    const std::string good = jpeg(77, 200, 200);
    folder_.put("cat/bad_empty.jpg", "");
    folder_.put("cat/bad_text.jpg", "hello world\n");
    folder_.put("cat/bad_truncated.jpg", good.substr(0, good.size() / 3));
    // Damage near the end, a misplaced restart marker: the decoder warns if it reads that part.
    std::string damaged = good;
    damaged.replace(damaged.size() * 9 / 10, 2, "\xFF\xD3");
    folder_.put("cat/bad_damaged.jpg", damaged);
    folder_.put("cat/bad_small.jpg", jpeg(5, 12, 9));  // for a random crop
  }
  std::shared_ptr<const Source> images() { return server::source::open_image_folder(folder_.path()).value(); }
  SampleCaches cache_of(const Source& source, std::size_t fields = 1, std::uint64_t budget = kPlenty) {
    arena_ = Arena::create("source `s`, cache.decoded", budget).value();
    return caches_of(arena_, source.size(), fields);
  }

  TempFolder folder_;
  std::shared_ptr<Arena> arena_;
};

TEST_F(DecodedCache, ChangesNoRowAndNoReasonForAnyChainAndBudget) {
  add_bad_files();
  const auto source = images();
  const std::vector<std::vector<Transform>> chains = {
      {make_op("random_resized_crop", {{"size", {24, 24}}}), make_op("random_horizontal_flip")},
      {make_op("random_crop", {{"size", {30, 20}}})},
      {make_op("resize", {{"size", 32}}), make_op("random_crop", {{"size", {28, 28}}}),
       make_op("random_vertical_flip")},
      {make_op("center_crop", {{"size", {50, 50}}}), make_op("random_rotate90"),
       make_op("random_resized_crop", {{"size", {16, 16}}})},
      {make_op("resize", {{"size", {20, 30}}}), make_op("to_y")},
      {make_op("random_horizontal_flip"), make_op("resize", {{"size", {20, 30}}})}};
  for (std::size_t c = 0; c < chains.size(); ++c) {
    StreamPlan plan = plan_of(chains[c]);
    plan.chain.warnings_are_bad = c % 2 == 0;
    Rows plain(source, plan);
    std::vector<std::vector<std::string>> expected;
    expected.reserve(3);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) expected.push_back(plain.epoch(epoch));
    if (c >= 4) {
      EXPECT_GT(plain.errors(BadReason::kWarning), 0U) << "those chains read whole images";
    }
    for (const std::uint64_t budget :
         {kPlenty, std::uint64_t{60'000}, std::uint64_t{3'000}, std::uint64_t{64}}) {
      Rows kept(source, plan, cache_of(*source, 1, budget));
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
        ASSERT_EQ(kept.epoch(epoch), expected[epoch]) << "chain " << c << " budget " << budget;
      for (std::size_t r = 1; r < server::metrics::kReasons; ++r)
        EXPECT_EQ(kept.errors(static_cast<BadReason>(r)), plain.errors(static_cast<BadReason>(r)))
            << "chain " << c << ": " << name_of(static_cast<BadReason>(r));
      EXPECT_LE(arena_->used(), budget);
      // No bad samples and no warning: a center crop does not reach the damage.
      EXPECT_LE(arena_->counts().samples, c == 3 ? 26U : 25U) << "chain " << c;
    }
  }
}

TEST_F(DecodedCache, DecodesASetThatFitsOnceEverAndThenDoesNotEvenReadIt) {
  const auto source = std::make_shared<CountingReads>(images());
  Rows rows(source,
            plan_of({make_op("resize", {{"size", 32}}), make_op("random_crop", {{"size", {28, 28}}})}),
            cache_of(*source));
  rows.epoch(0);
  EXPECT_EQ(rows.decoded(), 24U);
  EXPECT_EQ(source->reads, 24U);
  EXPECT_EQ(arena_->counts().misses, 24U);
  for (std::uint64_t epoch = 1; epoch < 4; ++epoch) rows.epoch(epoch);
  EXPECT_EQ(rows.decoded(), 24U);
  EXPECT_EQ(source->reads, 24U);
  EXPECT_EQ(arena_->counts().misses, 24U);
  EXPECT_EQ(arena_->counts().hits, 3U * 24);
}

TEST_F(DecodedCache, IsSharedByStreamsWithOnePrefix) {
  const auto source = images();
  const StreamPlan train =
      plan_of({make_op("resize", {{"size", 32}}), make_op("random_crop", {{"size", {28, 28}}}),
               make_op("random_horizontal_flip"), kNormalize},
              {DType::kFloat32});
  const StreamPlan other =
      plan_of({make_op("resize", {{"size", 32}}), make_op("random_resized_crop", {{"size", {8, 8}}})});
  const StreamPlan val =
      plan_of({make_op("resize", {{"size", 32}}), make_op("center_crop", {{"size", {28, 28}}})});
  const auto keys = [&](const StreamPlan& plan) {
    return server::exec::kept_keys(*source, server::exec::plan_fields(*source, plan, 8).value());
  };
  EXPECT_EQ(keys(train), keys(other));
  EXPECT_NE(keys(train), keys(val));

  const auto cache = cache_of(*source);
  Rows first(source, train, cache), second(source, other, cache);
  first.epoch(0);
  EXPECT_EQ(second.epoch(0), Rows(source, other).epoch(0));
  EXPECT_EQ(second.decoded(), 0U);
  EXPECT_EQ(arena_->counts().misses, 24U);
}

TEST_F(DecodedCache, RefusesAnImageOfAnotherSizeThatAStreamWithACropPrepared) {
  const TempFolder folder;
  for (std::uint32_t i = 0; i < 40; ++i)
    folder.put("cat/" + std::to_string(100 + i) + ".jpg", jpeg(i, i == 1 ? 90 : 50, i == 1 ? 70 : 40));
  const std::shared_ptr<const Source> source = server::source::open_image_folder(folder.path()).value();
  const StreamPlan cropped = plan_of({make_op("random_crop", {{"size", {20, 20}}})});
  for (const StreamPlan& whole : {plan_of({}), plan_of({make_op("random_horizontal_flip"), kNormalize},
                                                       {DType::kFloat32, PixelLayout::kNchw})}) {
    const auto cache = cache_of(*source);
    Rows first(source, cropped, cache), second(source, whole, cache);
    first.epoch(0);
    EXPECT_EQ(arena_->counts().samples, 40U);
    const auto rows = second.epoch(0);
    EXPECT_EQ(rows, Rows(source, whole).epoch(0));
    EXPECT_THAT(rows, ::testing::Contains(HasSubstr("90 x 70 pixels, expected 50 x 40 (width x height)")));
    EXPECT_EQ(second.errors(BadReason::kUnsupported), 1U);
  }
}

TEST_F(DecodedCache, GivesEveryThreadTheSameRowsAndIsFilledOnce) {
  const auto source = images();
  const StreamPlan plan = plan_of({make_op("random_resized_crop", {{"size", {24, 24}}})});
  const auto digest = [&](unsigned threads, const SampleCaches& caches) {
    StreamSetup setup;
    setup.maker = make_samples(source, {.seed = 3, .decoded = caches}, plan);
    setup.info = {.name = "s", .samples = source->size(), .batch_size = 4, .fields = setup.maker->fields()};
    setup.ledger = {.lanes = 2, .max_leases = 3, .prefetch = 4};
    std::vector<StreamSetup> setups;
    setups.push_back(std::move(setup));
    const auto engine = start_engine(std::move(setups), threads);
    RingClient client(*engine, "s", "c");
    Digest seen;
    seen.add_next(client, 3 * client.opened().epoch_length);
    return seen.value();
  };
  const std::uint64_t expected = digest(1, {});
  for (const unsigned threads : {1U, 2U, 4U, 8U}) {
    const auto arena = Arena::create("a", kPlenty).value();
    EXPECT_EQ(digest(threads, caches_of(arena, source->size(), 1, std::chrono::hours(1))), expected)
        << threads << " threads";
    EXPECT_EQ(arena->counts().misses, 24U);
    EXPECT_EQ(arena->counts().samples, 24U);
  }
}

/// Eight images and their masks; the sizes of number 5 do not fit.
std::shared_ptr<const Source> image_and_mask(const TempFolder& folder) {
  const auto png = [](int width, int height, int seed) {
    std::vector<std::uint8_t> gray(static_cast<std::size_t>(width * height));
    for (std::size_t i = 0; i < gray.size(); ++i)
      gray[i] = static_cast<std::uint8_t>((i * static_cast<std::size_t>(seed + 3)) % 21);
    return text(
        server::pictures::encode_png(gray, {.width = width, .height = height, .channels = 1}).value());
  };
  for (int i = 0; i < 8; ++i) {
    const std::string name = std::to_string(i);
    folder.put("image/" + name + ".jpg", jpeg(static_cast<std::uint32_t>(i), 60 + i, 50));
    folder.put("mask/" + name + ".png", png(60 + i + (i == 5 ? 1 : 0), 50, i));
  }
  return server::source::open_paired_folders(
             {{"image", {.path = folder.path() / "image"}},
              {"mask", {.path = folder.path() / "mask", .scale = 1, .mask = true}}})
      .value();
}

TEST_F(DecodedCache, IsSharedByStreamsWithOtherFields) {
  const auto source = image_and_mask(folder_);
  const StreamPlan both = plan_of({make_op("random_crop", {{"size", {32, 32}}})});
  StreamPlan images = plan_of({make_op("random_resized_crop", {{"size", {16, 16}}})});
  images.select = {"image"};
  const auto keys = [&](const StreamPlan& plan) {
    return server::exec::kept_keys(*source, server::exec::plan_fields(*source, plan, 8).value());
  };
  EXPECT_EQ(keys(images).at(0), keys(both).at(0));

  for (const bool pairs_first : {false, true}) {
    const auto arena = Arena::create("a", kPlenty).value();
    const auto image_cache = std::make_shared<server::cache::SampleCache>(arena, source->size());
    const auto mask_cache = std::make_shared<server::cache::SampleCache>(arena, source->size());
    const SampleCaches of_both({{0, {image_cache, mask_cache}}}), of_images({{0, {image_cache}}});
    Rows pairs(source, both, of_both), alone(source, images, of_images);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::string> of_pairs;
      if (pairs_first) of_pairs = pairs.epoch(epoch);
      EXPECT_EQ(alone.epoch(epoch), Rows(source, images).epoch(epoch));
      if (!pairs_first) of_pairs = pairs.epoch(epoch);
      EXPECT_EQ(of_pairs, Rows(source, both).epoch(epoch));
    }
    EXPECT_EQ(arena->counts().samples, 8U) << "a sample counts once, even if its fields come one by one";
    // Number 5 is bad as a pair, so its mask is decoded each time that it is drawn; its image is good.
    EXPECT_EQ(alone.decoded(), pairs_first ? 1U : 8U);
    if (!pairs_first) {
      EXPECT_EQ(pairs.decoded(), 7U + pairs.errors(BadReason::kMismatch));
    }
  }
}

TEST_F(DecodedCache, ChangesNoPairWhateverTheBudget) {
  const auto source = image_and_mask(folder_);
  const StreamPlan plan = plan_of({make_op("random_crop", {{"size", {32, 32}}})});
  Rows plain(source, plan);
  std::vector<std::vector<std::string>> expected;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) expected.push_back(plain.epoch(epoch));
  for (const std::uint64_t budget : {64, 4'000, 10'000, 30'000, 60'000}) {
    Rows kept(source, plan, cache_of(*source, 2, budget));
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(kept.epoch(epoch), expected[epoch]) << budget;
    EXPECT_LE(arena_->used(), budget);
  }
}

TEST_F(DecodedCache, KeepsPairsAndMasksTogether) {
  const auto source = image_and_mask(folder_);
  for (const auto& transforms : std::vector<std::vector<Transform>>{
           {make_op("random_crop", {{"size", {32, 32}}}), make_op("random_horizontal_flip"),
            make_op("random_rotate90")},
           {make_op("resize", {{"size", 40}}), make_op("random_resized_crop", {{"size", {32, 32}}})},
           {make_op("center_crop", {{"size", {48, 48}}}), make_op("random_crop", {{"size", {32, 32}}}),
            make_op("random_vertical_flip")}}) {
    const StreamPlan plan = plan_of(transforms);
    Rows plain(source, plan), kept(source, plan, cache_of(*source, 2));
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      const auto expected = plain.epoch(epoch);
      EXPECT_EQ(kept.epoch(epoch), expected);
      EXPECT_THAT(expected, ::testing::Contains(HasSubstr("mismatch")));
    }
    EXPECT_EQ(kept.errors(BadReason::kMismatch), plain.errors(BadReason::kMismatch));
    EXPECT_EQ(arena_->counts().samples, 7U);
  }
}

TEST_F(DecodedCache, KeepsDerivedImages) {
  const auto source = images();
  StreamPlan plan = plan_of({make_op("random_crop", {{"size", {8, 8}}}), make_op("random_horizontal_flip")});
  plan.derived["lr"] = {"image", {.factor = 2}};
  Rows plain(source, plan), kept(source, plan, cache_of(*source, 2));
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(kept.epoch(epoch), plain.epoch(epoch));
  EXPECT_EQ(kept.decoded(), 48U) << "each twice: for itself, and for what is derived from it";
}

TEST_F(DecodedCache, KeepsTheValuesBesideTheImages) {
  std::string rows = "image,boxes\n";
  for (int i = 0; i < 6; ++i) {
    folder_.put("m/" + std::to_string(i) + ".jpg", jpeg(static_cast<std::uint32_t>(i), 50, 40));
    rows +=
        std::to_string(i) + ".jpg,\"[" + (i % 2 ? "[1, 2], [3, " + std::to_string(i) + "]" : "") + "]\"\n";
  }
  using server::source::ManifestKind;
  const auto manifest = server::source::open_manifest(
      {.path = folder_.put("m/m.csv", rows),
       .root = {},
       .fields = {{"image", {.kind = ManifestKind::kImage}},
                  {"boxes", {.kind = ManifestKind::kRagged, .dtype = DType::kInt16, .shape = {2}}}}});
  ASSERT_TRUE(manifest) << manifest.error().message;
  const auto source = std::make_shared<CountingReads>(*manifest);
  const StreamPlan plan = plan_of({make_op("random_crop", {{"size", {32, 32}}})});
  Rows plain(*manifest, plan), kept(source, plan, cache_of(*source, 2));
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(kept.epoch(epoch), plain.epoch(epoch));
  EXPECT_EQ(source->reads, 6U);

  Rows small(source, plan, cache_of(*source, 2, 2'000));
  EXPECT_EQ(small.epoch(0), plain.epoch(0));
  EXPECT_EQ(arena_->used(), 0U) << "boxes are not kept without their image";
}

TEST_F(DecodedCache, TriesAgainAfterAnIoError) {
  const auto source = images();
  Rows rows(source, plan_of({make_op("random_crop", {{"size", {30, 20}}})}), cache_of(*source));
  const auto path = folder_.path() / "cat/101.jpg";
  std::filesystem::rename(path, folder_.path() / "away");
  LooseRow row(rows.maker());
  RowScratch scratch;
  int failed = 0;
  for (std::uint64_t i = 0; i < 24; ++i) {
    const auto made = rows.maker().show(0, i, row.fields, scratch);
    if (made) continue;
    EXPECT_EQ(made.error().code, ErrorCode::kDatasetInvalid);
    EXPECT_THAT(made.error().message, HasSubstr("101.jpg"));
    ++failed;
  }
  EXPECT_EQ(failed, 1);
  std::filesystem::rename(folder_.path() / "away", path);
  EXPECT_EQ(rows.epoch(0), Rows(source, plan_of({make_op("random_crop", {{"size", {30, 20}}})})).epoch(0));
  EXPECT_EQ(arena_->counts().samples, 24U);
}

TEST_F(DecodedCache, HasNoUseWhereNothingIsDecodedAndAllIsDrawn) {
  const auto rows = server::source::make_synthetic(10, 4).value();
  EXPECT_THAT(server::exec::kept_keys(*rows, server::exec::plan_fields(*rows, {}, 8).value()),
              ::testing::IsEmpty());
}

}  // namespace
}  // namespace headrace::testing
