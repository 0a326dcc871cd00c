#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "server/transform/draw_steps.h"
#include "server/transform/ops/ops.h"
#include "server/transform/plan.h"
#include "server/transform/stages/stage.h"
#include "tests/pixels/make_jpeg.h"

namespace headrace::server::transform {
namespace {

using pixels::make_jpeg;
using ::testing::HasSubstr;

Plan plan_of(std::vector<Transform> transforms, Output output = {}) {
  PlanConfig config;
  config.transforms = std::move(transforms);
  config.output = output;
  auto plan = Plan::compile(config);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan.value();
}

std::string refusal(std::vector<Transform> transforms, Output output = {}) {
  PlanConfig config;
  config.transforms = std::move(transforms);
  config.output = output;
  const auto plan = Plan::compile(config);
  EXPECT_FALSE(plan);
  if (plan) return {};
  EXPECT_EQ(plan.error().code, ErrorCode::kConfigInvalid);
  return plan.error().message;
}

std::vector<std::byte> row_of(const Plan& plan, std::span<const std::uint8_t> file, DrawKey key,
                              Scratch& scratch) {
  std::vector<std::byte> row(plan.row_bytes());
  const auto report = plan.render(file, key, scratch, row.data());
  EXPECT_EQ(report.bad, BadReason::kNone) << report.detail;
  return row;
}

const Transform kNormalize =
    make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}});

TEST(PlanCompile, SaysWhatIsWrongWithAChain) {
  EXPECT_THAT(refusal({}), HasSubstr("different sizes"));
  EXPECT_THAT(refusal({make_op("resize", {{"size", 256}})}), HasSubstr("different sizes"));
  EXPECT_THAT(refusal({make_op("random_resized_crop", {{"size", {224, 224}}, {"scale", {0.5, 0.2}}})}),
              HasSubstr("scale"));
  EXPECT_THAT(refusal({make_op("random_resized_crop", {{"size", {224, 224}}, {"ratio", {0, 4.0 / 3.0}}})}),
              HasSubstr("ratio"));
  EXPECT_THAT(refusal({make_op("resize", {{"size", 64}, {"max_size", 64}}),
                       make_op("center_crop", {{"size", {8, 8}}})}),
              HasSubstr("max_size 64"));
  EXPECT_THAT(
      refusal({make_op("center_crop", {{"size", {32, 32}}}), make_op("random_crop", {{"size", {40, 20}}})}),
      HasSubstr("larger than"));
  EXPECT_THAT(refusal({make_op("center_crop", {{"size", {32, 32}}}), kNormalize}),
              HasSubstr("uint8 cannot hold"));
  EXPECT_THAT(refusal({kNormalize, make_op("center_crop", {{"size", {32, 32}}})}, {DType::kFloat32}),
              HasSubstr("last"));
  EXPECT_THAT(
      refusal({make_op("center_crop", {{"size", {32, 32}}}),
               make_op("normalize", {{"mean", {0, 0}}, {"std", {1, 1}}})},
              {DType::kFloat32}),
      HasSubstr("expected 3 numbers (red, green, blue) in each of mean and std, one per channel, found 2"));
  EXPECT_THAT(refusal({make_op("center_crop", {{"size", {32, 32}}}),
                       make_op("normalize", {{"mean", {0, 0, 0}}, {"std", {1, 0, 1}}})},
                      {DType::kFloat32}),
              HasSubstr("above 0"));
  EXPECT_THAT(refusal({make_op("center_crop", {{"size", {32, 32}}})}, {DType::kInt64}),
              HasSubstr("dtype int64"));
}

TEST(Plan, DescribesItsField) {
  const auto planar =
      plan_of({make_op("center_crop", {{"size", {20, 30}}})}, {DType::kFloat16, PixelLayout::kNchw})
          .image_field();
  EXPECT_EQ(planar.shape, (std::vector<std::int64_t>{3, 20, 30}));
  EXPECT_EQ(planar.dtype, DType::kFloat16);
  const auto plan =
      plan_of({make_op("center_crop", {{"size", {20, 30}}})}, {DType::kFloat32, PixelLayout::kNhwc});
  EXPECT_EQ(plan.image_field().shape, (std::vector<std::int64_t>{20, 30, 3}));
  EXPECT_EQ(plan.row_bytes(), 20U * 30 * 3 * 4);
  EXPECT_EQ(plan.row_bytes(), row_bytes(plan.image_field()));
}

TEST(Plan, RefusesIntermediateImagesAboveMaxPixelsUnlessACropMakesThemSmall) {
  const auto file = make_jpeg({.width = 60, .height = 40, .seed = 1});
  const auto render = [&](std::vector<Transform> transforms) {
    PlanConfig config;
    config.transforms = std::move(transforms);
    config.max_pixels = 60 * 40;
    const auto plan = Plan::compile(config).value();
    Scratch scratch;
    std::vector<std::byte> row(plan.row_bytes());
    return plan.render(file, {1, 0, 0}, scratch, row.data());
  };
  const auto report =
      render({make_op("resize", {{"size", {49, 49}}}), make_op("resize", {{"size", {8, 8}}})});
  EXPECT_EQ(report.bad, BadReason::kTooLarge);
  EXPECT_THAT(report.detail, HasSubstr("49 x 49 pixels, max_pixels is 2400"));
  EXPECT_EQ(render({make_op("resize", {{"size", {48, 50}}}), make_op("resize", {{"size", {8, 8}}})}).bad,
            BadReason::kNone);
  EXPECT_EQ(render({make_op("resize", {{"size", {400, 600}}}), make_op("center_crop", {{"size", {8, 8}}}),
                    make_op("resize", {{"size", {4, 4}}})})
                .bad,
            BadReason::kNone);
  EXPECT_EQ(render({make_op("resize", {{"size", {80, 80}}})}).bad, BadReason::kNone)
      << "the row's own size is the config's";
}

TEST(Plan, RendersTheSameRowWithAUsedScratch) {
  const auto plan = plan_of(
      {make_op("random_resized_crop", {{"size", {64, 48}}}), make_op("random_horizontal_flip"), kNormalize},
      {DType::kFloat32, PixelLayout::kNchw});
  std::vector<std::vector<std::uint8_t>> files;
  for (std::uint32_t i = 0; i < 5; ++i) {
    files.push_back(make_jpeg(
        {.width = 40 + 90 * static_cast<int>(i), .height = 300 - 50 * static_cast<int>(i), .seed = i}));
  }
  Scratch used;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      std::vector<std::byte> ignored(plan.row_bytes());
      const auto report =
          plan.render(std::span(files[i]).first(files[i].size() / 2), {1, 2, i}, used, ignored.data());
      EXPECT_EQ(report.bad, BadReason::kTruncated);
      Scratch fresh;
      EXPECT_EQ(row_of(plan, files[i], {1, 2, i}, used), row_of(plan, files[i], {1, 2, i}, fresh));
    }
  }
}

TEST(Plan, DrawsDependOnSeedEpochPositionAndStageAlone) {
  const auto plan =
      plan_of({make_op("random_resized_crop", {{"size", {8, 8}}}), make_op("random_horizontal_flip")});
  const auto file = make_jpeg({.width = 400, .height = 300});
  const auto at = [&](DrawKey key) { return plan.parameters(file, key).value()[0]; };
  EXPECT_EQ(at({1, 2, 3}), at({1, 2, 3}));
  EXPECT_NE(at({1, 2, 3}), at({1, 2, 4}));
  EXPECT_NE(at({1, 2, 3}), at({1, 3, 3}));
  EXPECT_NE(at({1, 2, 3}), at({2, 2, 3}));
  const auto later =
      plan_of({make_op("random_vertical_flip"), make_op("random_resized_crop", {{"size", {8, 8}}})});
  EXPECT_NE(at({1, 2, 3}), later.parameters(file, {1, 2, 3}).value()[1]) << "the stage is part of the key";
}

TEST(Plan, GoldenDrawsStayAsTheyAre) {
  // A change here changes every user's stream: it needs a new algorithm version in the fingerprint.
  const auto plan =
      plan_of({make_op("random_resized_crop", {{"size", {224, 224}}}), make_op("random_horizontal_flip"),
               make_op("random_crop", {{"size", {200, 200}}})});
  const auto drawn = plan.parameters(make_jpeg({.width = 500, .height = 375}), {1234, 5, 678}).value();
  EXPECT_EQ(drawn.dump(),
            R"([{"height":332,"left":49,"op":"random_resized_crop","top":14,"width":263},)"
            R"({"applied":false,"op":"random_horizontal_flip"},)"
            R"({"height":200,"left":21,"op":"random_crop","padding":[0,0,0,0],"top":15,"width":200}])");
}

TEST(Plan, SmallerImagesThanARandomCropAreBadSamples) {
  const auto plan = plan_of({make_op("random_crop", {{"size", {64, 64}}})});
  std::vector<std::byte> row(plan.row_bytes());
  Scratch scratch;
  const auto report = plan.render(make_jpeg({.width = 63, .height = 64}), {}, scratch, row.data());
  EXPECT_EQ(report.bad, BadReason::kUnsupported);
  EXPECT_THAT(report.detail, HasSubstr("random_crop"));
}

TEST(Plan, WarningsAreBadOnlyWhereTheConfigurationSaysSo) {
  auto file = make_jpeg({.width = 160, .height = 120, .horizontal = 1, .vertical = 1});
  file[file.size() / 2] = 0xFF;
  file[file.size() / 2 + 1] = 0xD3;
  for (const bool bad : {false, true}) {
    PlanConfig config;
    config.transforms = {make_op("center_crop", {{"size", {120, 160}}})};
    config.warnings_are_bad = bad;
    const auto plan = Plan::compile(config).value();
    std::vector<std::byte> row(plan.row_bytes());
    Scratch scratch;
    const auto report = plan.render(file, {}, scratch, row.data());
    EXPECT_TRUE(report.warned);
    EXPECT_EQ(report.bad, bad ? BadReason::kWarning : BadReason::kNone);
  }
}

TEST(Plan, OrderOfPassesIsThatOfTheConfiguredPillow) {
  const auto file = make_jpeg({.width = 300, .height = 500});
  PlanConfig config;
  config.transforms = {make_op("resize", {{"size", {224, 224}}})};
  const auto now = Plan::compile(config).value();
  config.passes = ResizePasses::kHorizontalFirst;
  const auto before = Plan::compile(config).value();
  Scratch scratch;
  EXPECT_NE(row_of(now, file, {}, scratch), row_of(before, file, {}, scratch))
      << "height shrinks by 276, width by 76";
  const auto wide = make_jpeg({.width = 500, .height = 300});
  EXPECT_EQ(row_of(now, wide, {}, scratch), row_of(before, wide, {}, scratch));
}

Stages stages_of_chain(const PlanConfig& config, decode::ImageSize size, DrawKey key) {
  std::vector<Step> steps;
  Stages stages;
  EXPECT_TRUE(draw_steps(config, size, key, steps));
  stages_of(steps, size, stages);
  return stages;
}

TEST(Stages, MergeCropsAndMoveFlipsToTheEnd) {
  PlanConfig config;
  config.transforms = {
      make_op("center_crop", {{"size", {80, 90}}}), make_op("random_horizontal_flip", {{"p", 1.0}}),
      make_op("center_crop", {{"size", {60, 61}}}), make_op("random_vertical_flip", {{"p", 1.0}}),
      make_op("random_crop", {{"size", {50, 40}}})};
  const auto stages = stages_of_chain(config, {100, 200}, {1, 2, 3});
  ASSERT_EQ(stages.size(), 1U);
  EXPECT_TRUE(stages[0].mirrored && stages[0].flipped && !stages[0].resized && !stages[0].padded);
  EXPECT_EQ(stages[0].crop.width, 40);
  EXPECT_EQ(stages[0].crop.height, 50);
}

TEST(Stages, ResizeThenCenterCropIsOneWindow) {
  PlanConfig config;
  config.transforms = {make_op("resize", {{"size", 256}}), make_op("center_crop", {{"size", {224, 224}}})};
  const auto stages = stages_of_chain(config, {500, 375}, {});
  ASSERT_EQ(stages.size(), 1U);
  EXPECT_EQ(stages[0].size, (decode::ImageSize{341, 256}));
  EXPECT_EQ(stages[0].window, (decode::Rect{58, 16, 224, 224}));
}

TEST(Stages, NeedMemoryForTheImagesBetweenThemAndBetweenThePassesOfAResize) {
  PlanConfig config;
  config.transforms = {make_op("resize", {{"size", {10, 20}}})};
  const auto bytes = [&](decode::ImageSize size) {
    return bytes_between(stages_of_chain(config, size, {}), ResizePasses::kHorizontalFirst);
  };
  EXPECT_EQ(bytes({100, 5000}), 3U * 20 * 5000) << "rows of the width, before their number is reduced";
  config.transforms = {make_op("center_crop", {{"size", {30, 40}}})};
  EXPECT_EQ(bytes({100, 5000}), 0U);
  config.transforms = {make_op("resize", {{"size", {30, 40}}}), make_op("resize", {{"size", {8, 8}}})};
  EXPECT_EQ(bytes({100, 5000}), 3U * (40 * 5000 + 40 * 30 + 8 * 30));
}

TEST(Plan, SurvivesDamagedFilesInLongChains) {
  std::mt19937 random(12);
  const auto plan = plan_of({make_op("resize", {{"size", 90}}), make_op("random_horizontal_flip"),
                             make_op("random_crop", {{"size", {80, 70}},
                                                     {"padding", {3, 0, 0, 9}},
                                                     {"pad_if_needed", true},
                                                     {"padding_mode", "reflect"}}),
                             make_op("center_crop", {{"size", {60, 66}}}), make_op("random_vertical_flip"),
                             make_op("resize", {{"size", {40, 51}}, {"interpolation", "bicubic"}}),
                             make_op("center_crop", {{"size", {36, 31}}})});
  Scratch scratch;
  std::vector<std::byte> row(plan.row_bytes());
  int good = 0, bad = 0;
  for (int i = 0; i < 300; ++i) {
    auto file = make_jpeg({.width = 1 + static_cast<int>(random() % 200),
                           .height = 1 + static_cast<int>(random() % 200),
                           .progressive = i % 3 == 0,
                           .seed = static_cast<std::uint32_t>(random())});
    if (i % 4 != 0) file[random() % file.size()] = static_cast<std::uint8_t>(random());
    const auto report = plan.render(file, {9, 9, static_cast<std::uint64_t>(i)}, scratch, row.data());
    (report.bad == BadReason::kNone ? good : bad)++;
  }
  EXPECT_GT(good, 0);
  EXPECT_GT(bad, 0);
}

}  // namespace
}  // namespace headrace::server::transform
