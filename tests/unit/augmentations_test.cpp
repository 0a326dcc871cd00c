// Chains with augmentations: refused arguments, draws, and stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "server/transform/draw_steps.h"
#include "server/transform/kernels/normal_quantile.h"
#include "server/transform/op.h"
#include "server/transform/ops/ops.h"
#include "server/transform/plan.h"
#include "server/transform/stages/stage.h"
#include "server/transform/stream_plan.h"
#include "tests/pixels/make_jpeg.h"

namespace headrace::server::transform {
namespace {

using pixels::make_jpeg;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

const Transform kNormalize =
    make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}});
const Transform kJitter = make_op(
    "color_jitter",
    {{"brightness", {0.6, 1.4}}, {"contrast", {0.6, 1.4}}, {"saturation", {0.6, 1.4}}, {"hue", {-0.1, 0.1}}});

PlanConfig chain(std::vector<Transform> transforms, Output output = {}) {
  PlanConfig config;
  config.transforms = std::move(transforms);
  config.output = output;
  return config;
}

std::string refusal(std::vector<Transform> transforms, DType dtype = DType::kUInt8) {
  transforms.insert(transforms.begin(), make_op("center_crop", {{"size", {32, 32}}}));
  const auto plan = Plan::compile(chain(std::move(transforms), {dtype}));
  return plan ? "" : plan.error().message;
}

Bytes row_of(const Plan& plan, std::span<const std::uint8_t> file, DrawKey key, Scratch& scratch) {
  Bytes row(plan.row_bytes());
  const auto report = plan.render(file, key, scratch, row.data());
  EXPECT_EQ(report.bad, BadReason::kNone) << report.detail;
  return row;
}

TEST(Augmentations, SayWhatIsWrongWithTheirArguments) {
  EXPECT_THAT(refusal({make_op("color_jitter", {{"brightness", {-0.1, 1}}})}),
              HasSubstr("brightness [-0.1, 1]"));
  EXPECT_THAT(refusal({make_op("color_jitter", {{"contrast", {2, 1}}})}),
              HasSubstr("contrast [2, 1] must rise"));
  EXPECT_THAT(refusal({make_op("color_jitter", {{"hue", {-0.6, 0}}})}), HasSubstr("hue [-0.6, 0]"));
  EXPECT_THAT(refusal({make_op("rand_augment", {{"magnitude", 31}})}),
              HasSubstr("magnitude: expected 0 to 30 (num_magnitude_bins - 1), found 31"));
  EXPECT_THAT(refusal({make_op("gaussian_blur", {{"kernel_size", {4, 3}}})}), HasSubstr("[4, 3]"));
  EXPECT_THAT(refusal({make_op("gaussian_blur", {{"kernel_size", {1, 1}}, {"sigma", {0, 1}}})}),
              HasSubstr("sigma [0, 1]"));
  EXPECT_THAT(refusal({make_op("random_erasing", {{"scale", {0.5, 0.2}}})}), HasSubstr("scale [0.5, 0.2]"));
  EXPECT_THAT(refusal({make_op("random_erasing", {{"value", {1, 2}}})}),
              HasSubstr("2 values for 3 channels"));
  EXPECT_THAT(refusal({make_op("random_erasing", {{"value", {0.5}}})}),
              HasSubstr("whole numbers from 0 to 255"));
  EXPECT_THAT(refusal({make_op("random_erasing", {{"value", "random"}})}),
              HasSubstr("random needs a float output"));
}

TEST(RandomErasing, IsTheLastTransform) {
  EXPECT_EQ(refusal({kNormalize, make_op("random_erasing"), make_op("random_erasing")}, DType::kFloat32), "");
  EXPECT_EQ(refusal({make_op("to_y"), make_op("random_erasing", {{"value", {16}}})}), "");
  EXPECT_THAT(refusal({make_op("random_erasing"), kNormalize}, DType::kFloat32),
              HasSubstr("after normalize"));
  EXPECT_THAT(refusal({make_op("random_erasing"), make_op("random_horizontal_flip")}),
              HasSubstr("random_erasing must be the last"));
}

TEST(Augmentations, GoldenDrawsStayAsTheyAre) {
  // A change here changes every user's stream: it needs a new algorithm version in the fingerprint.
  const auto plan = Plan::compile(
      chain({make_op("center_crop", {{"size", {90, 80}}}), kJitter, make_op("random_grayscale", {{"p", 0.5}}),
             make_op("rand_augment"), make_op("trivial_augment_wide"),
             make_op("gaussian_blur", {{"kernel_size", {3, 3}}}), make_op("random_erasing", {{"p", 1}})}));
  const auto drawn = plan->parameters(make_jpeg({.width = 100, .height = 95}), {1234, 5, 678}).value();
  EXPECT_EQ(
      drawn.dump(),
      R"([{"height":90,"left":10,"op":"center_crop","padding":[0,0,0,0],"top":2,"width":80},)"
      R"({"brightness":1.1749427318572998,"contrast":0.7175863981246948,"hue":0.0992058664560318,)"
      R"("op":"color_jitter","order":["brightness","saturation","contrast","hue"],"saturation":1.316611647605896},)"
      R"({"applied":false,"op":"random_grayscale"},)"
      R"({"op":"rand_augment","ops":[{"magnitude":0.0,"name":"Identity"},{"magnitude":0.26999998092651367,"name":"Sharpness"}]},)"
      R"({"op":"trivial_augment_wide","ops":[{"magnitude":2.0,"name":"Posterize"}]},)"
      R"({"applied":true,"op":"gaussian_blur","sigma":0.1494983583688736},)"
      R"({"applied":true,"height":24,"left":0,"noise":15728490955604041141,"op":"random_erasing","top":49,"width":57}])");
}

std::vector<Step> drawn(const PlanConfig& config, decode::ImageSize size, DrawKey key) {
  std::vector<Step> steps;
  EXPECT_TRUE(draw_steps(config, size, key, steps));
  return steps;
}

Stages stages(std::vector<Transform> transforms) {
  Stages made;
  stages_of(drawn(chain(std::move(transforms)), {100, 60}, {1, 2, 3}), {100, 60}, made);
  return made;
}

TEST(Stages, EndWithColorsBetweenFlips) {
  const auto one =
      stages({make_op("random_horizontal_flip", {{"p", 1}}), make_op("center_crop", {{"size", {40, 40}}}),
              kJitter, make_op("random_vertical_flip", {{"p", 1}}), make_op("random_grayscale", {{"p", 1}}),
              make_op("random_rotate90")});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].ops.size(), 5U);
  EXPECT_EQ(stages({kJitter, make_op("center_crop", {{"size", {40, 40}}})}).size(), 2U);
  EXPECT_EQ(stages({kJitter, make_op("resize", {{"size", {40, 40}}}), kJitter}).size(), 2U);
  EXPECT_EQ(stages({make_op("gaussian_blur", {{"kernel_size", {3, 3}}}),
                    make_op("random_horizontal_flip", {{"p", 1}})})
                .size(),
            2U)
      << "sums are not symmetric";
}

TEST(Augmentations, InTwoPartsGiveTheRowOfRenderAndEndThePrefix) {
  std::vector<PlanConfig> configs;
  for (const Transform& t : std::vector<Transform>{
           kJitter, make_op("random_grayscale", {{"p", 0.5}}), make_op("rand_augment", {{"num_ops", 3}}),
           make_op("trivial_augment_wide", {{"interpolation", "bilinear"}}),
           make_op("gaussian_blur", {{"kernel_size", {5, 3}}}),
           make_op("random_erasing", {{"p", 1}, {"value", {3, 4, 5}}})})
    configs.push_back(chain({make_op("resize", {{"size", {50, 64}}}), t}));
  configs.push_back(chain(
      {make_op("resize", {{"size", {50, 64}}}), kJitter, make_op("random_horizontal_flip"),
       make_op("rand_augment"), make_op("random_crop", {{"size", {40, 40}}}), make_op("trivial_augment_wide"),
       kNormalize, make_op("random_erasing", {{"p", 1}, {"value", "random"}})},
      {DType::kFloat16, PixelLayout::kNhwc}));
  Scratch scratch;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const auto plan = Plan::compile(configs[i]).value();
    EXPECT_THAT(plan.prefix(), testing::HasSubstr("\"size\":[50,64]}"));
    const auto file = make_jpeg({.width = 150, .height = 110, .seed = static_cast<std::uint32_t>(i)});
    std::vector<std::uint8_t> storage;
    Prepared prepared;
    ASSERT_TRUE(plan.prepare(file, scratch, 1 << 24, storage, prepared));
    for (std::uint64_t position = 0; position < 40; ++position) {
      Bytes parts(plan.row_bytes());
      const DrawKey key{7, 1, position};
      EXPECT_EQ(plan.finish(prepared, key, scratch, parts.data()).bad, BadReason::kNone);
      ASSERT_EQ(parts, row_of(plan, file, key, scratch)) << plan.parameters(file, key)->dump();
    }
  }
}

TEST(Augmentations, OfAMaskAreOnlyTheGeometricOnes) {
  StreamPlan stream;
  stream.chain =
      chain({make_op("center_crop", {{"size", {32, 32}}}), kJitter, make_op("random_grayscale", {{"p", 1}}),
             make_op("gaussian_blur", {{"kernel_size", {3, 3}}}), make_op("rand_augment", {{"num_ops", 4}}),
             make_op("random_erasing", {{"p", 1}})});
  stream.only.resize(stream.chain.transforms.size());
  const PlanConfig mask = stream.chain_of("mask", true);
  for (const std::size_t i : {1U, 2U, 3U, 5U}) EXPECT_TRUE(is_skipped(mask.transforms[i]));
  int geometric = 0;
  for (std::uint64_t position = 0; position < 50; ++position) {
    const auto of_image = drawn(stream.chain, {40, 40}, {1, 2, position})[4].ops;
    const auto of_mask = drawn(mask, {40, 40}, {1, 2, position})[4].ops;
    std::size_t next = 0;
    for (const PixelOp& op : of_image) {
      if (!op.geometric()) continue;
      ASSERT_LT(next, of_mask.size());
      EXPECT_EQ(of_mask[next].kind, op.kind);
      EXPECT_EQ(of_mask[next++].factor, op.factor);
      ++geometric;
    }
    EXPECT_EQ(next, of_mask.size());
  }
  EXPECT_GT(geometric, 20);
}

TEST(Augmentations, MoveByPixelsTimesTheScale) {
  auto config =
      chain({make_op("center_crop", {{"size", {32, 32}}}), make_op("rand_augment", {{"num_ops", 16}})});
  const auto small = drawn(config, {40, 40}, {1, 2, 3})[1].ops;
  config.scale = 4;
  const auto large = drawn(config, {160, 160}, {1, 2, 3})[1].ops;
  ASSERT_EQ(small.size(), large.size());
  bool moved = false;
  for (std::size_t i = 0; i < small.size(); ++i) {
    const bool moves =
        small[i].kind == PixelOp::Kind::kTranslateX || small[i].kind == PixelOp::Kind::kTranslateY;
    EXPECT_EQ(large[i].factor, small[i].factor * (moves ? 4 : 1));
    moved = moved || moves;
  }
  EXPECT_TRUE(moved);
}

TEST(Augmentations, LeaveTheirScratchAsTheyFoundIt) {
  const auto plan = Plan::compile(chain({make_op("random_resized_crop", {{"size", {48, 40}}}),
                                         make_op("rand_augment", {{"num_ops", 3}}), kJitter,
                                         make_op("trivial_augment_wide"),
                                         make_op("gaussian_blur", {{"kernel_size", {3, 5}}})}))
                        .value();
  std::mt19937 random(3);
  Scratch used;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto file = make_jpeg({.width = 1 + static_cast<int>(random() % 300),
                                 .height = 1 + static_cast<int>(random() % 300),
                                 .seed = static_cast<std::uint32_t>(i)});
    Scratch fresh;
    EXPECT_EQ(row_of(plan, file, {1, 2, i}, used), row_of(plan, file, {1, 2, i}, fresh));
  }
}

TEST(Augmentations, WorkOnPicturesOfOnePixel) {
  for (const auto& [width, height] : {std::pair{1, 1}, {2, 1}, {1, 9}, {2, 2}}) {
    const auto file = make_jpeg({.width = width, .height = height});
    const auto plan =
        Plan::compile(
            chain({kJitter, make_op("rand_augment", {{"num_ops", 16}, {"interpolation", "bilinear"}}),
                   make_op("trivial_augment_wide"), make_op("resize", {{"size", {3, 3}}}),
                   make_op("rand_augment", {{"num_ops", 16}}),
                   make_op("random_erasing", {{"p", 1}, {"scale", {0.02, 1}}})}))
            .value();
    Scratch scratch;
    for (std::uint64_t position = 0; position < 60; ++position) row_of(plan, file, {4, 0, position}, scratch);
  }
}

TEST(Normal, IsSymmetricRisesAndHasTheKnownQuantiles) {
  EXPECT_NEAR(normal_of(0x8000'0000U), 0, 1e-9);
  EXPECT_NEAR(normal_of(static_cast<std::uint32_t>(0.8413447460685429 * 4294967296.0)), 1.0, 1e-8);
  EXPECT_NEAR(normal_of(static_cast<std::uint32_t>(0.9772498680518208 * 4294967296.0)), 2.0, 1e-7);
  EXPECT_NEAR(normal_of(0), -6.337957754553789, 1e-12);
  double before = -7;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 0x10'0001) {
    const double value = normal_of(static_cast<std::uint32_t>(bits));
    EXPECT_GT(value, before);
    EXPECT_NEAR(value, -normal_of(~static_cast<std::uint32_t>(bits)), 1e-8);
    before = value;
  }
}

}  // namespace
}  // namespace headrace::server::transform
