// Rows made a slice at a time equal rows made one by one; rows that slices cannot make are reported as
// remaining.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <numeric>
#include <random>

#include "server/pictures/png_file.h"
#include "server/source/combine/repeat.h"
#include "server/source/combine/split.h"
#include "server/source/formats/npy.h"
#include "server/source/formats/paired_folders.h"
#include "server/source/formats/pixel_table.h"
#include "server/transform/ops/ops.h"
#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

using namespace server::transform;
using server::cache::Arena;
using server::exec::FieldTarget;
using server::exec::LooseRow;
using server::exec::RowScratch;
using server::exec::SliceRow;
using server::metrics::Stage;
using server::metrics::StreamCounters;
using server::source::Source;

using Bytes = std::vector<std::uint8_t>;

Bytes noise(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

/// Two files in CIFAR's format: a label byte before each image.
std::shared_ptr<const Source> pixel_source(const server::decode::PixelShape& shape) {
  const auto size = static_cast<std::size_t>(shape.width) * static_cast<std::size_t>(shape.height) *
                    static_cast<std::size_t>(shape.channels);
  server::source::PixelTable table;
  table.shape = shape;
  for (const std::uint64_t count : {37U, 20U})
    table.files.push_back(
        {"f", noise(count * (size + 1), static_cast<std::uint32_t>(count)), 1, size + 1, count});
  for (std::uint8_t i = 0; i < 57; ++i) table.labels.push_back(i % 10);
  table.classes = server::source::numbered_classes(table.labels);
  return server::source::make_pixel_source(std::move(table));
}

StreamPlan plan_of(std::vector<Transform> transforms, Output output = {}) {
  StreamPlan plan;
  plan.chain.transforms = std::move(transforms);
  plan.chain.output = output;
  return plan;
}

/// A batch's rows, field after field.
struct Batch {
  explicit Batch(const SampleMaker& maker, std::uint32_t rows) {
    for (std::size_t f = 0; f < maker.fields().size(); ++f)
      fields.emplace_back(rows * maker.row_size(f), std::byte{0xCC});
    for (auto& field : fields) targets.push_back({field.data(), nullptr});
  }
  std::vector<std::vector<std::byte>> fields;
  std::vector<FieldTarget> targets;
};

/// Compares one and a half epochs. Returns the number of rows that slices made.
std::uint64_t compare(const SampleMaker& maker, std::uint32_t slice, StreamCounters& counters) {
  RowScratch scratch, other;
  StreamCounters uncounted;
  std::uint64_t made = 0;
  const std::uint64_t epoch = 2;
  const auto order = maker.order(epoch);
  for (std::uint64_t first = 0; first < maker.size() + maker.size() / 2; first += slice) {
    Batch batch(maker, slice);
    scratch.pixels.set_streamed(first / slice % 2 == 1);
    const auto rows = maker.make_slice(order, epoch, first, slice, batch.targets, scratch, counters);
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].made) continue;
      ++made;
      LooseRow row(maker);
      const auto want = maker.make(order, epoch, (first + i) % maker.size(), row.fields, other, uncounted);
      EXPECT_TRUE(want) << want.error().message;
      EXPECT_FALSE(want->replaced);
      EXPECT_EQ(rows[i].sample_index, want->sample_index);
      std::string got;
      for (std::size_t f = 0; f < batch.fields.size(); ++f)
        got.append(reinterpret_cast<const char*>(batch.fields[f].data()) + i * maker.row_size(f),
                   maker.row_size(f));
      EXPECT_EQ(got, row.bytes()) << "position " << first + i;
    }
  }
  return made;
}

std::uint64_t observed(const StreamCounters& counters, Stage stage) {
  server::metrics::StreamTotals totals;
  totals.add(counters);
  const auto& buckets = totals.stages[static_cast<std::size_t>(stage)].buckets;
  return std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0});
}

const std::vector<Transform> kAugmented = {
    make_op("random_crop", {{"size", {12, 12}}, {"padding", {2, 2, 2, 2}}}),
    make_op("random_horizontal_flip"), make_op("random_rotate90")};

TEST(Slices, OfPixelsInMemoryAreTheRowsThatAreMadeOneByOne) {
  for (const server::decode::PixelShape shape :
       {server::decode::PixelShape{14, 12, 1, false}, {14, 12, 3, false}, {14, 12, 3, true}}) {
    const auto source = pixel_source(shape);
    for (const auto& transforms : {std::vector<Transform>{}, kAugmented})
      for (const DType dtype : {DType::kUInt8, DType::kFloat32})
        for (const std::uint32_t slice : {1U, 7U, 64U}) {
          const auto maker = make_samples(source, {.seed = 4}, plan_of(transforms, {dtype}));
          StreamCounters counters;
          const std::uint64_t made = compare(*maker, slice, counters);
          EXPECT_GE(made, 57U + 28);
          EXPECT_EQ(counters.samples.get(), made);
          EXPECT_EQ(counters.read_bytes.get(),
                    made * static_cast<std::uint64_t>(shape.width * shape.height * shape.channels));
          for (const Stage stage : {Stage::kRead, Stage::kDecode, Stage::kTransform})
            EXPECT_EQ(observed(counters, stage), made);
        }
  }
}

TEST(Slices, AreMadeThroughSourcesOfSources) {
  const auto source = pixel_source({14, 12, 3, true});
  const auto repeated = server::source::repeat(source, 3).value();
  const auto part = server::source::first_samples(repeated, 100).value();
  for (const auto& of : {repeated, part}) {
    StreamCounters counters;
    EXPECT_GE(compare(*make_samples(of, {.seed = 4}, plan_of(kAugmented)), 16, counters), of->size());
  }
  const auto maker = make_samples(
      part, {.seed = 4, .sampler = server::sampler::make_sequential(part->size())}, plan_of(kAugmented));
  StreamCounters counters;
  EXPECT_GE(compare(*maker, 16, counters), 100U);
}

TEST(Slices, AreNotMadeOfImagesThatAreReadOrResized) {
  const auto source = pixel_source({14, 12, 3, true});
  StreamCounters counters;
  EXPECT_EQ(
      compare(*make_samples(std::make_shared<ForwardingSource>(source), {.seed = 4}, plan_of(kAugmented)), 16,
              counters),
      0U);
  EXPECT_EQ(compare(*make_samples(source, {.seed = 4}, plan_of({make_op("resize", {{"size", {8, 8}}})})), 16,
                    counters),
            0U);
  EXPECT_EQ(compare(*make_samples(source, {.seed = 4}, plan_of({make_op("to_y")})), 16, counters), 0U);
  EXPECT_EQ(counters.samples.get(), 0U);
}

std::string npy(const std::string& descr, const std::string& shape, const Bytes& values) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(118, ' ');
  const std::string magic("\x93NUMPY\x01\x00\x76\x00", 10);
  return magic + header + std::string(values.begin(), values.end());
}

TEST(Slices, CarryOtherFieldsAlong) {
  const TempFolder folder;
  Bytes labels(40 * 8);
  for (std::size_t i = 0; i < 40; ++i) labels[i * 8] = static_cast<std::uint8_t>(i % 4);
  const auto source =
      server::source::open_npy_set(
          {.files = {{"image", folder.put("i.npy", npy("|u1", "(40, 3, 9, 20)", noise(40 * 540, 1)))},
                     {"where", folder.put("w.npy", npy("<f4", "(40, 2)", noise(320, 2)))},
                     {"label", folder.put("l.npy", npy("<i8", "(40,)", labels))}}})
          .value();
  StreamCounters counters;
  EXPECT_GE(compare(*make_samples(source, {.seed = 1}, plan_of({make_op("random_crop", {{"size", {5, 6}}})})),
                    8, counters),
            60U);
}

class Kept : public ::testing::Test {
 protected:
  /// Pairs of x4; the last ones do not fit.
  void SetUp() override {
    for (std::uint32_t i = 0; i < 12; ++i) {
      const auto png = [&](std::int32_t width, std::int32_t height) {
        const auto pixels = noise(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3, i);
        const Bytes file = server::pictures::encode_png(pixels, {width, height, 3, false}).value();
        return std::string(file.begin(), file.end());
      };
      const auto width = static_cast<std::int32_t>(20 + i), height = 22;
      const std::string name = std::to_string(100 + i) + ".png";
      folder_.put("lr/" + name, png(width, height));
      folder_.put("hr/" + name, png(4 * width + (i >= 10 ? 4 : 0), 4 * height));
    }
    source_ = server::source::open_paired_folders({{"lr", {.path = folder_.path() / "lr"}},
                                                   {"hr", {.path = folder_.path() / "hr", .scale = 4}}})
                  .value();
    arena_ = Arena::create("a", 64 << 20).value();
    maker_ =
        make_samples(source_, {.seed = 6, .max_bad = 1, .decoded = caches_of(arena_, source_->size(), 2)},
                     plan_of({make_op("random_crop", {{"size", {12, 12}}}), make_op("random_horizontal_flip"),
                              make_op("random_vertical_flip"), make_op("random_rotate90")},
                             {DType::kFloat32}));
  }

  TempFolder folder_;
  std::shared_ptr<const Source> source_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<const SampleMaker> maker_;
};

TEST_F(Kept, PairsAreCutOutOfTheCacheAndTheOthersLeft) {
  StreamCounters counters;
  RowScratch scratch;
  Batch batch(*maker_, 12);
  const auto order = maker_->order(0);
  for (const SliceRow& row : maker_->make_slice(order, 0, 0, 12, batch.targets, scratch, counters))
    EXPECT_FALSE(row.made) << "nothing is kept yet";
  for (std::uint64_t i = 0; i < 6; ++i) {
    LooseRow row(*maker_);
    ASSERT_TRUE(maker_->make(order, 0, i, row.fields, scratch, counters));
  }
  const std::uint64_t samples = arena_->counts().samples;
  ASSERT_GT(samples, 2U);
  std::uint64_t made = 0;
  for (const SliceRow& row : maker_->make_slice(order, 0, 0, 12, batch.targets, scratch, counters))
    made += row.made ? 1 : 0;
  EXPECT_EQ(made, samples) << "those that are kept, and no others";
  for (std::uint64_t i = 6; i < 12; ++i) {
    LooseRow row(*maker_);
    ASSERT_TRUE(maker_->make(order, 0, i, row.fields, scratch, counters));
  }
  StreamCounters all;
  std::uint64_t fitting = 0;
  for (std::uint64_t position = 0; position < 20; ++position)
    fitting += maker_->order(2)(position % 12) < 10 ? 1 : 0;
  EXPECT_EQ(compare(*maker_, 5, all), fitting);
}

}  // namespace
}  // namespace headrace::testing
