// A chain in two parts gives the same rows as in one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/transform/op.h"
#include "server/transform/ops/ops.h"
#include "server/transform/plan.h"
#include "tests/pixels/make_jpeg.h"

namespace headrace::server::transform {
namespace {

using pixels::make_jpeg;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kRoom = 1 << 28;
const Transform kNormalize =
    make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}});

PlanConfig chain(std::vector<Transform> transforms, Output output = {}) {
  PlanConfig config;
  config.transforms = std::move(transforms);
  config.output = output;
  return config;
}

struct Case {
  const char* name;
  PlanConfig config;
  bool prefix = true;  ///< the first part does more than decode
  friend void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }
};

std::vector<Case> cases() {
  const Output half{DType::kFloat16, PixelLayout::kNhwc}, full{DType::kFloat32, PixelLayout::kNchw};
  std::vector<Case> all{
      {"RandomResizedCrop",
       chain({make_op("random_resized_crop", {{"size", {40, 56}}}), make_op("random_horizontal_flip")}),
       false},
      {"RandomResizedCropBicubic",
       chain({make_op("random_resized_crop", {{"size", {40, 56}}, {"interpolation", "bicubic"}}), kNormalize},
             full),
       false},
      {"RandomCropPadded",
       chain({make_op("random_crop", {{"size", {90, 90}},
                                      {"padding", {3, 0, 9, 0}},
                                      {"pad_if_needed", true},
                                      {"fill", {1, 2, 3}}}),
              make_op("random_vertical_flip")}),
       false},
      {"FlipBeforeResize",
       chain({make_op("random_horizontal_flip"), make_op("resize", {{"size", {33, 47}}})}), false},
      {"ResizeThenRandomCrop",
       chain({make_op("resize", {{"size", 64}}), make_op("random_crop", {{"size", {48, 48}}})})},
      {"ResizeWithMaxSize",
       chain({make_op("resize", {{"size", 64}, {"max_size", 70}, {"interpolation", "bicubic"}}),
              make_op("random_crop",
                      {{"size", {60, 60}}, {"pad_if_needed", true}, {"padding_mode", "reflect"}})})},
      {"ResizeNearest",
       chain({make_op("resize", {{"size", {45, 45}}, {"interpolation", "nearest"}}),
              make_op("random_rotate90"), make_op("random_resized_crop", {{"size", {20, 20}}})})},
      {"CenterCropThatPads",
       chain({make_op("center_crop", {{"size", {150, 60}}}),
              make_op("random_crop",
                      {{"size", {140, 64}}, {"padding", {9, 0, 0, 0}}, {"padding_mode", "edge"}})})},
      {"CenterCropThenRandomResize", chain({make_op("center_crop", {{"size", {50, 50}}}),
                                            make_op("random_resized_crop", {{"size", {64, 64}}}),
                                            make_op("random_horizontal_flip"), kNormalize},
                                           half)},
      {"SeveralFixed",
       chain({make_op("center_crop", {{"size", {90, 80}}}), make_op("resize", {{"size", {60, 70}}}),
              make_op("center_crop", {{"size", {50, 64}}}), make_op("resize", {{"size", {77, 77}}}),
              make_op("random_rotate90"), make_op("random_resized_crop", {{"size", {30, 30}}}),
              make_op("random_vertical_flip")})},
      {"AllOfIt",
       chain({make_op("resize", {{"size", 50}}), make_op("center_crop", {{"size", {48, 48}}}), kNormalize},
             full)},
      {"Luma", chain({make_op("resize", {{"size", 50}}), make_op("random_crop", {{"size", {40, 40}}}),
                      make_op("to_y"), make_op("normalize", {{"mean", {0.5}}, {"std", {0.25}}})},
                     full)},
      {"HeldPlaces", chain({skipped(), make_op("resize", {{"size", {60, 60}}}), skipped(),
                            make_op("random_crop", {{"size", {32, 32}}})})},
  };
  PlanConfig horizontal =
      chain({make_op("resize", {{"size", {20, 90}}}), make_op("random_crop", {{"size", {16, 64}}})});
  horizontal.passes = ResizePasses::kHorizontalFirst;
  all.push_back({"HorizontalFirst", horizontal});
  PlanConfig derived = chain({make_op("random_crop", {{"size", {12, 12}}}), make_op("random_horizontal_flip"),
                              make_op("random_rotate90")});
  derived.multiple = 4;
  derived.derived = Derivation{.factor = 4};
  all.push_back({"Derived", derived});
  derived.derived->enlarge = true;
  derived.scale = 4;
  all.push_back({"DerivedAndEnlarged", derived});
  PlanConfig scaled = chain({make_op("center_crop", {{"size", {14, 14}}}),
                             make_op("random_crop", {{"size", {12, 12}}}), make_op("random_vertical_flip")});
  scaled.multiple = scaled.scale = 4;
  all.push_back({"Scaled", scaled});
  return all;
}

class Prepare : public testing::TestWithParam<Case> {};

TEST_P(Prepare, ThenFinishGivesTheRowOfRender) {
  const auto plan = Plan::compile(GetParam().config);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->has_prefix(), GetParam().prefix);
  std::vector<Bytes> files;
  files.reserve(15);
  for (const auto& [width, height] : {std::pair{160, 101}, {64, 64}, {70, 223}, {99, 75}, {52, 190}})
    for (const int components : {1, 3, 4})
      files.push_back(make_jpeg({.width = width,
                                 .height = height,
                                 .components = components,
                                 .horizontal = components == 3 ? 2 : 1,
                                 .vertical = components == 3 ? 2 : 1,
                                 .progressive = width == 64,
                                 .seed = static_cast<std::uint32_t>(width)}));
  Scratch scratch;
  Bytes storage;
  int good = 0;
  for (const Bytes& file : files) {
    Prepared prepared;
    ASSERT_TRUE(plan->prepare(file, scratch, kRoom, storage, prepared));
    const Bytes kept(prepared.bytes.begin(), prepared.bytes.end());
    prepared.bytes = kept;
    for (std::uint64_t position = 0; position < 6; ++position) {
      std::vector<std::byte> whole(plan->row_bytes()), parts(plan->row_bytes());
      const DrawKey key{3, position / 4, position};
      const auto expected = plan->render(file, key, scratch, whole.data());
      const auto report = plan->finish(prepared, key, scratch, parts.data());
      ASSERT_EQ(report.bad, expected.bad) << report.detail;
      ASSERT_EQ(report.detail, expected.detail);
      if (report.bad != BadReason::kNone) continue;
      ASSERT_EQ(report.base.height, expected.base.height);
      ASSERT_EQ(report.base.width, expected.base.width);
      ASSERT_EQ(parts, whole) << plan->parameters(file, key)->dump();
      ++good;
    }
  }
  EXPECT_GT(good, 30);
}

INSTANTIATE_TEST_SUITE_P(Chains, Prepare, testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(PreparePixels, AreOneChannelWhereTheSetIsGray) {
  PlanConfig config =
      chain({make_op("resize", {{"size", {30, 20}}}), make_op("random_crop", {{"size", {16, 16}}})});
  config.channels = 1;
  const auto plan = Plan::compile(config).value();
  const auto file = make_jpeg({.width = 80, .height = 60, .components = 1});
  Scratch scratch;
  Bytes storage;
  Prepared prepared;
  ASSERT_TRUE(plan.prepare(file, scratch, 600, storage, prepared));
  EXPECT_EQ(prepared.bytes.size(), 600U);
  EXPECT_EQ(prepared.pixels.channels, 1);
  EXPECT_EQ(plan.prepared_bytes(), 600U);
  std::vector<std::byte> whole(plan.row_bytes()), parts(plan.row_bytes());
  plan.render(file, {1, 2, 3}, scratch, whole.data());
  plan.finish(prepared, {1, 2, 3}, scratch, parts.data());
  EXPECT_EQ(parts, whole);
}

TEST(PreparePixels, AreRefusedWithoutRoomForAllOfThem) {
  const auto plan = Plan::compile(chain({make_op("resize", {{"size", {30, 20}}}),
                                         make_op("random_crop", {{"size", {16, 16}}})}))
                        .value();
  Scratch scratch;
  Bytes storage;
  Prepared prepared;
  const auto file = make_jpeg({});
  EXPECT_FALSE(plan.prepare(file, scratch, 1799, storage, prepared));
  EXPECT_TRUE(storage.empty()) << "known before anything is decoded";
  EXPECT_TRUE(plan.prepare(file, scratch, 1800, storage, prepared));
}

TEST(PreparePixels, AreRefusedOfWhatRenderAloneCanTellAbout) {
  const auto plan = Plan::compile(chain({make_op("random_crop", {{"size", {16, 16}}})})).value();
  const auto prepares = [](const Plan& by, const Bytes& file) {
    Scratch scratch;
    Bytes storage;
    Prepared prepared;
    return by.prepare(file, scratch, kRoom, storage, prepared);
  };
  Bytes file = make_jpeg({.width = 200, .height = 200});
  EXPECT_TRUE(prepares(plan, file));
  EXPECT_FALSE(prepares(plan, {}));
  EXPECT_FALSE(prepares(plan, {'h', 'i'}));
  EXPECT_FALSE(prepares(plan, {file.begin(), file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2)}));
  // Damage outside some crops: their rows are good, and stay good.
  file[file.size() * 9 / 10] = 0xFF;
  file[file.size() * 9 / 10 + 1] = 0xD3;
  EXPECT_FALSE(prepares(plan, file));
  Scratch scratch;
  std::vector<std::byte> row(plan.row_bytes());
  int warned = 0;
  for (std::uint64_t position = 0; position < 100; ++position)
    warned += plan.render(file, {1, 0, position}, scratch, row.data()).warned;
  EXPECT_GT(warned, 0);
  EXPECT_LT(warned, 100);

  PlanConfig limited =
      chain({make_op("resize", {{"size", {400, 600}}}), make_op("random_crop", {{"size", {8, 8}}})});
  limited.max_pixels = 60 * 40;
  const auto narrow = Plan::compile(limited).value();
  const auto small = make_jpeg({.width = 60, .height = 40});
  EXPECT_FALSE(prepares(narrow, small)) << "240,000 pixels, of which a row needs 64";
  EXPECT_EQ(narrow.render(small, {1, 0, 0}, scratch, row.data()).bad, BadReason::kNone);
}

TEST(PlanPrefix, IsEqualTextForWhatGivesEqualPixelsAlone) {
  const auto prefix = [](const PlanConfig& config) { return Plan::compile(config).value().prefix(); };
  const auto crop = make_op("random_crop", {{"size", {8, 8}}});
  const std::string base = prefix(chain({make_op("resize", {{"size", 64}}), crop}));
  EXPECT_EQ(prefix(chain({make_op("resize", {{"size", 64}}), make_op("center_crop", {{"size", {9, 9}}})}))
                .find(base),
            0U);
  EXPECT_EQ(prefix(chain({skipped(), make_op("resize", {{"size", 64}}),
                          make_op("random_resized_crop", {{"size", {8, 8}}}), kNormalize},
                         {DType::kFloat32})),
            base)
      << "later transforms, and those for other fields, do not matter";
  EXPECT_NE(prefix(chain({make_op("resize", {{"size", 65}}), crop})), base);
  EXPECT_NE(prefix(chain({make_op("resize", {{"size", 64}, {"max_size", 99}}), crop})), base);
  EXPECT_NE(prefix(chain({make_op("resize", {{"size", 64}, {"interpolation", "bicubic"}}), crop})), base);
  EXPECT_NE(prefix(chain({make_op("resize", {{"size", {64, 64}}}), crop})), base);
  EXPECT_NE(prefix(chain({make_op("resize", {{"size", {64, 48}}}), crop})),
            prefix(chain({make_op("resize", {{"size", {48, 64}}}), crop})));
  EXPECT_NE(prefix(chain({make_op("resize", {{"size", 64}}), make_op("center_crop", {{"size", {32, 16}}})})),
            prefix(chain({make_op("resize", {{"size", 64}}), make_op("center_crop", {{"size", {16, 32}}})})));
  EXPECT_NE(prefix(chain({crop})), base);
  const auto changed = [&](auto change) {
    PlanConfig config = chain({make_op("resize", {{"size", 64}}), crop});
    change(config);
    return prefix(config) != base;
  };
  EXPECT_TRUE(changed([](PlanConfig& c) { c.passes = ResizePasses::kHorizontalFirst; }));
  EXPECT_TRUE(changed([](PlanConfig& c) { c.max_pixels = 9999; }));
  EXPECT_TRUE(changed([](PlanConfig& c) { c.channels = 1; }));
  EXPECT_TRUE(changed([](PlanConfig& c) { c.mask = true; }));
  EXPECT_TRUE(changed([](PlanConfig& c) { c.multiple = 2; }));
  EXPECT_TRUE(changed([](PlanConfig& c) { c.scale = c.multiple = 2; }));
  EXPECT_TRUE(changed([](PlanConfig& c) { c.derived = Derivation{.factor = 2}; }));
}

TEST(PlanPrefix, KnowsItsBytesWhereAllImagesGiveTheSame) {
  const auto bytes = [](const PlanConfig& config) { return Plan::compile(config).value().prepared_bytes(); };
  const auto crop = make_op("random_crop", {{"size", {8, 8}}});
  EXPECT_EQ(bytes(chain({crop})), std::nullopt);
  EXPECT_EQ(bytes(chain({make_op("resize", {{"size", 64}}), crop})), std::nullopt);
  EXPECT_EQ(bytes(chain({make_op("resize", {{"size", {64, 48}}}), crop})), 64U * 48 * 3);
  EXPECT_EQ(
      bytes(chain({make_op("resize", {{"size", 64}}), make_op("center_crop", {{"size", {50, 60}}}), crop})),
      50U * 60 * 3);
  EXPECT_EQ(
      bytes(chain({make_op("center_crop", {{"size", {50, 100}}}), make_op("resize", {{"size", 20}}), crop})),
      20U * 40 * 3);
  PlanConfig one_size = chain({crop});
  one_size.input = {30, 40};
  EXPECT_EQ(bytes(one_size), 30U * 40 * 3);
}

}  // namespace
}  // namespace headrace::server::transform
