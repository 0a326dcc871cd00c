// Cuts of raw pixels give the same rows as the ordinary path, which renders the same pixels from a PNG file
// without cuts.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "server/pictures/png_file.h"
#include "server/transform/op.h"
#include "server/transform/ops/ops.h"
#include "server/transform/plan.h"
#include "tests/every_target.h"

namespace headrace::server::transform {
namespace {

using decode::PixelShape;
using testing::on_every_target;
using Bytes = std::vector<std::uint8_t>;

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::int32_t between(std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(engine_);
  }
  bool one_in(std::int32_t n) { return between(1, n) == 1; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

struct Picture {
  PixelShape shape;
  Bytes pixels;       ///< as `shape` says
  Bytes interleaved;  ///< the same
};

Picture picture_of(Random& random, const PixelShape& shape) {
  Picture out{.shape = shape};
  const auto plane = static_cast<std::size_t>(out.shape.width) * static_cast<std::size_t>(out.shape.height);
  const auto channels = static_cast<std::size_t>(out.shape.channels);
  out.pixels.resize(plane * channels);
  for (auto& pixel : out.pixels) pixel = random.byte();
  out.interleaved = out.pixels;
  if (out.shape.planar)
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t i = 0; i < plane; ++i) out.interleaved[i * channels + c] = out.pixels[c * plane + i];
  return out;
}

Picture picture_of(Random& random) {
  const bool large = random.one_in(4);
  return picture_of(random, {.width = random.between(1, large ? 150 : 40),
                             .height = random.between(1, large ? 100 : 40),
                             .channels = random.one_in(3) ? 1 : 3,
                             .planar = random.one_in(2)});
}

/// `any`: sizes of images are not known beforehand, so that a crop may turn out to be too large.
Transform transform_of(Random& random, Size at_most, bool any) {
  constexpr const char* kModes[] = {"constant", "edge", "reflect", "symmetric"};
  const Size size{random.between(1, at_most.height), random.between(1, at_most.width)};
  switch (random.between(0, 5)) {
    case 0:
      return make_op("center_crop", {{"size", {size.height, size.width}}});
    case 1:
      return make_op(
          "random_crop",
          {{"size", {size.height, size.width}},
           {"padding",
            {random.between(0, 9), random.between(0, 9), random.between(0, 9), random.between(0, 9)}},
           {"pad_if_needed", true},
           {"fill", {random.byte(), random.byte(), random.byte()}},
           {"padding_mode", kModes[random.between(0, 3)]}});
    case 2:
      return make_op("random_horizontal_flip", {{"p", 0.5}});
    case 3:
      return make_op("random_vertical_flip", {{"p", 0.5}});
    case 4:
      return skipped();
    default:
      return make_op("random_crop",
                     {{"size", {size.height, size.width}}, {"pad_if_needed", !any || random.one_in(2)}});
  }
}

PlanConfig chain_of(Random& random, const Picture& picture) {
  PlanConfig config;
  config.channels = picture.shape.channels;
  if (random.one_in(2)) config.input = {picture.shape.height, picture.shape.width};
  config.mask = picture.shape.channels == 1 && random.one_in(8);
  const Size at_most{picture.shape.height + 20, picture.shape.width + 20};
  const int count = random.between(0, 4);
  for (int i = 0; i < count; ++i)
    config.transforms.push_back(transform_of(random, at_most, config.input.height == 0));
  const std::int32_t side = random.between(1, at_most.width);
  if (random.one_in(2)) {  // rotations need squares
    config.transforms.emplace_back(make_op("random_crop", {{"size", {side, side}}, {"pad_if_needed", true}}));
    config.transforms.emplace_back(make_op("random_rotate90"));
    if (random.one_in(3)) config.transforms.emplace_back(make_op("random_horizontal_flip", {{"p", 0.5}}));
  } else if (config.input.height == 0) {
    config.transforms.emplace_back(
        make_op("center_crop", {{"size", {random.between(1, at_most.height), side}}}));
  }
  constexpr DType kTypes[] = {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32};
  config.output = {kTypes[random.between(0, 3)], random.one_in(2) ? PixelLayout::kNchw : PixelLayout::kNhwc};
  const auto channels = static_cast<std::size_t>(config.channels);
  if (!config.mask && config.output.dtype != DType::kUInt8 && random.one_in(2))
    config.transforms.emplace_back(make_op("normalize", {{"mean", std::vector<double>(channels, 0.4)},
                                                         {"std", std::vector<double>(channels, 0.2)}}));
  return config;
}

/// A row with a guard behind it.
class Row {
 public:
  explicit Row(const Plan& plan) : size_(plan.row_bytes()), bytes_(size_ + 64, std::byte{0x5A}) {}
  std::byte* data() { return bytes_.data(); }
  [[nodiscard]] bool intact() const {
    return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(size_), bytes_.end(),
                       [](std::byte byte) { return byte == std::byte{0x5A}; });
  }
  friend bool operator==(const Row&, const Row&) = default;

 private:
  std::size_t size_;
  std::vector<std::byte> bytes_;
};

struct Outcome {
  int cut = 0, prepared = 0, refused = 0;
};

void compare(const Picture& picture, const PlanConfig& config, Scratch& scratch, Outcome& outcome) {
  const auto plan = Plan::compile(config);
  if (!plan && plan.error().message.find("is larger than") != std::string::npos)
    return;  // after another crop
  ASSERT_TRUE(plan) << plan.error().message;
  PixelShape plain = picture.shape;
  plain.planar = false;
  const Bytes file = pictures::encode_png(picture.interleaved, plain).value();
  const decode::ImageData bare{picture.pixels, picture.shape};
  Bytes storage;
  Prepared prepared;
  ASSERT_TRUE(plan->prepare(file, scratch, 1 << 24, storage, prepared));
  for (std::uint64_t position = 0; position < 4; ++position) {
    const DrawKey key{5, position % 2, position};
    scratch.set_streamed(position % 2 == 1);
    Row want(*plan), rendered(*plan), cut(*plan), kept(*plan), finished(*plan);
    const auto expected = plan->render(file, key, scratch, want.data());
    const auto report = plan->render(bare, key, scratch, rendered.data());
    ASSERT_EQ(report.bad, expected.bad) << report.detail;
    ASSERT_EQ(report.detail, expected.detail);
    Size base;
    if (expected.bad != BadReason::kNone) {
      ASSERT_FALSE(plan->cut(bare, key, scratch, cut.data(), base));
      ++outcome.refused;
      continue;
    }
    const auto drawn = plan->parameters(file, key)->dump();
    ASSERT_EQ(rendered, want) << drawn;
    ASSERT_EQ(plan->finish(prepared, key, scratch, finished.data()).bad, BadReason::kNone);
    ASSERT_EQ(finished, want) << drawn;
    if (plan->cut(bare, key, scratch, cut.data(), base)) {
      ASSERT_TRUE(plan->may_cut_bare());
      ASSERT_EQ(cut, want) << drawn;
      ASSERT_EQ(base.height, expected.base.height);
      ASSERT_EQ(base.width, expected.base.width);
      ++outcome.cut;
    }
    if (plan->cut(prepared, key, scratch, kept.data())) {
      ASSERT_TRUE(plan->may_cut_prepared());
      ASSERT_EQ(kept, want) << drawn;
      ++outcome.prepared;
    }
    ASSERT_TRUE(want.intact() && rendered.intact() && cut.intact() && kept.intact());
  }
}

TEST(Cut, GivesTheRowsOfTheOrdinaryPath) {
  Outcome outcome;
  on_every_target([&] {
    Random random(21);
    Scratch scratch;
    for (int i = 0; i < 1500 && !::testing::Test::HasFatalFailure(); ++i) {
      const Picture picture = picture_of(random);
      compare(picture, chain_of(random, picture), scratch, outcome);
    }
  });
  EXPECT_GT(outcome.cut, 3000);
  EXPECT_GT(outcome.prepared, 3000);
  EXPECT_GT(outcome.refused, 100);
}

TEST(Cut, MakesLargeRowsInStripsThatAreTheWhole) {
  Random random(22);
  Scratch scratch;
  Outcome outcome;
  const std::vector<Transform> turned{make_op("random_crop", {{"size", {192, 192}}, {"pad_if_needed", true}}),
                                      make_op("random_rotate90"),
                                      make_op("random_horizontal_flip", {{"p", 0.5}})},
      narrow{make_op("random_crop", {{"size", {191, 191}}, {"pad_if_needed", true}}),
             make_op("random_rotate90")},
      flipped{make_op("random_vertical_flip", {{"p", 0.5}}), make_op("random_horizontal_flip", {{"p", 0.5}})},
      padded{make_op("random_crop",
                     {{"size", {201, 390}}, {"pad_if_needed", true}, {"padding_mode", "reflect"}})};
  for (const auto& [width, height] : {std::pair{400, 40}, {192, 192}, {191, 193}, {130, 257}, {1100, 37}})
    for (const auto& [stored, made] : {std::pair{1, 1}, {1, 3}, {3, 3}})
      for (const bool planar : {false, true})
        for (const DType dtype : {DType::kUInt8, DType::kFloat32})
          for (const PixelLayout layout : {PixelLayout::kNchw, PixelLayout::kNhwc})
            for (const auto& transforms : {std::vector<Transform>{}, turned, narrow, flipped, padded}) {
              PlanConfig config;
              config.channels = made;
              config.input = {height, width};
              config.transforms = transforms;
              config.output = {dtype, layout};
              const Picture picture = picture_of(
                  random, {.width = width, .height = height, .channels = stored, .planar = planar});
              ASSERT_NO_FATAL_FAILURE(compare(picture, config, scratch, outcome))
                  << width << " x " << height << " x " << stored << " to " << made
                  << (planar ? " planar" : "");
            }
  EXPECT_GT(outcome.cut, 1000);
}

TEST(Cut, CopiesAPictureOnlyWhereItIsTheRow) {
  constexpr std::size_t kPlane = 30UL * 40;
  Bytes pixels(3 * kPlane + 5);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  const auto image_of = [&](std::int32_t width, std::int32_t channels, bool planar, std::size_t more = 0) {
    const PixelShape shape{.width = width, .height = 1200 / width, .channels = channels, .planar = planar};
    return decode::ImageData{std::span(pixels).first(static_cast<std::size_t>(channels) * kPlane + more),
                             shape};
  };
  const std::vector<decode::ImageData> images{image_of(30, 3, true),  image_of(30, 3, false),
                                              image_of(30, 1, false), image_of(30, 1, true),
                                              image_of(40, 3, true),  image_of(30, 3, true, 5)};
  std::vector<Plan> plans;
  for (const PixelLayout layout : {PixelLayout::kNchw, PixelLayout::kNhwc})
    for (const std::int32_t top : {40, 39}) {
      PlanConfig config;
      config.output = {DType::kUInt8, layout};
      config.transforms = {make_op("center_crop", {{"size", {top, 30}}})};
      plans.push_back(Plan::compile(config).value());
    }
  Scratch scratch;
  for (std::size_t i = 0; i < 600; ++i) {
    const decode::ImageData& image = images[i * 7 / 3 % images.size()];
    const Plan& plan = plans[i / 2 % plans.size()];  // also twice in turn
    scratch.set_streamed(i % 5 == 0);
    Scratch fresh;
    Size base, fresh_base;
    Row got(plan), want(plan);
    ASSERT_TRUE(plan.cut(image, {1, 2, 3}, scratch, got.data(), base));
    ASSERT_TRUE(plan.cut(image, {1, 2, 3}, fresh, want.data(), fresh_base));
    ASSERT_EQ(got, want) << i;
    ASSERT_TRUE(base.width == fresh_base.width && base.height == fresh_base.height);
  }
  Row row(plans[0]);
  Size base;
  ASSERT_TRUE(plans[0].cut(images[0], {1, 2, 3}, scratch, row.data(), base));
  EXPECT_EQ(std::memcmp(row.data(), pixels.data(), 3 * kPlane), 0);
}

TEST(Cut, KeepsWhatNothingIsDrawnForApartForEachSizeAndPlan) {
  Bytes pixels(40 * 30);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7);
  const auto plan_of = [](Size size) {
    PlanConfig config;
    config.channels = 1;
    config.transforms = {make_op("center_crop", {{"size", {size.height, size.width}}})};
    return Plan::compile(config).value();
  };
  const Plan small = plan_of({4, 4}), large = plan_of({20, 28});
  const decode::ImageData wide{pixels, {.width = 40, .height = 30, .channels = 1}},
      high{pixels, {.width = 30, .height = 40, .channels = 1}};
  Scratch scratch;
  for (int i = 0; i < 2; ++i)
    for (const Plan* plan : {&small, &large})
      for (const auto& image : {wide, wide, high, high}) {
        Size base, fresh_base;
        Row got(*plan), want(*plan);
        Scratch fresh;
        ASSERT_TRUE(plan->cut(image, {1, 2, 3}, scratch, got.data(), base));
        ASSERT_TRUE(plan->cut(image, {1, 2, 3}, fresh, want.data(), fresh_base));
        EXPECT_EQ(got, want);
        EXPECT_EQ(base.width, image.pixels.width);
        EXPECT_EQ(base.height, image.pixels.height);
      }
}

TEST(Cut, SaysNothingOfWhatOnlyRenderKnows) {
  const Bytes pixels(32 * 32 * 3);
  const decode::ImageData image{pixels, {.width = 32, .height = 32, .channels = 3}};
  Scratch scratch;
  Size base;
  const auto cuts = [&](const decode::ImageData& data, std::vector<Transform> transforms, auto change) {
    PlanConfig config;
    config.transforms = std::move(transforms);
    change(config);
    const auto plan = Plan::compile(config);
    EXPECT_TRUE(plan) << plan.error().message;
    std::vector<std::byte> row(plan->row_bytes());
    return plan->cut(data, {1, 2, 3}, scratch, row.data(), base);
  };
  const auto plain = [](PlanConfig&) {};
  const Transform crop = make_op("random_crop", {{"size", {8, 8}}});
  EXPECT_TRUE(cuts(image, {crop}, plain));
  EXPECT_FALSE(cuts(image, {crop, make_op("to_y")}, plain)) << "colors";
  EXPECT_FALSE(cuts(image, {make_op("random_resized_crop", {{"size", {8, 8}}})}, plain)) << "a resize";
  EXPECT_FALSE(cuts(image, {make_op("random_crop", {{"size", {40, 8}}})}, plain))
      << "a crop larger than the image";
  EXPECT_FALSE(cuts(image, {crop}, [](PlanConfig& c) { c.max_pixels = 1000; }));
  EXPECT_FALSE(cuts(image, {crop}, [](PlanConfig& c) { c.input = {16, 16}; }));
  EXPECT_FALSE(cuts(image, {crop}, [](PlanConfig& c) { c.unit = 3; }));
  EXPECT_FALSE(cuts({std::span(pixels).first(3071), image.pixels}, {crop}, plain)) << "too few bytes";
  EXPECT_FALSE(cuts({pixels, {.width = 32, .height = 32, .channels = 2}}, {crop}, plain));
  EXPECT_FALSE(cuts({pixels, {.width = -32, .height = 32}}, {crop}, plain));
  EXPECT_FALSE(cuts(pixels, {crop}, plain)) << "a file";
}

}  // namespace
}  // namespace headrace::server::transform
