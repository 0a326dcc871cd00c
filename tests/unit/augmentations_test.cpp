// Chains with augmentations: what is refused, what is drawn, where they are made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "server/transform/erase.h"
#include "server/transform/geometry.h"
#include "server/transform/plan.h"
#include "server/transform/stream_plan.h"
#include "tests/pixels/make_jpeg.h"

namespace headrace::server::transform {
namespace {

using pixels::make_jpeg;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

const Normalize kNormalize{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
const ColorJitter kJitter{Bounds{0.6, 1.4}, Bounds{0.6, 1.4}, Bounds{0.6, 1.4}, Bounds{-0.1, 0.1}};

PlanConfig chain(std::vector<Transform> transforms, Output output = {}) {
  PlanConfig config;
  config.transforms = std::move(transforms);
  config.output = output;
  return config;
}

std::string refusal(std::vector<Transform> transforms, DType dtype = DType::kUInt8) {
  transforms.insert(transforms.begin(), CenterCrop{{32, 32}});
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
  EXPECT_THAT(refusal({ColorJitter{.brightness = Bounds{-0.1, 1}}}), HasSubstr("brightness [-0.1, 1]"));
  EXPECT_THAT(refusal({ColorJitter{.contrast = Bounds{2, 1}}}), HasSubstr("contrast [2, 1] must rise"));
  EXPECT_THAT(refusal({ColorJitter{.hue = Bounds{-0.6, 0}}}), HasSubstr("hue [-0.6, 0]"));
  EXPECT_THAT(refusal({ColorJitter{.p = 2}}), HasSubstr("color_jitter: p 2"));
  EXPECT_THAT(refusal({RandomGrayscale{-1}}), HasSubstr("random_grayscale: p -1"));
  EXPECT_THAT(refusal({RandAugment{.magnitude = 31}}), HasSubstr("magnitude 31 must be between 0 and 30"));
  EXPECT_THAT(refusal({RandAugment{.num_ops = 17}}), HasSubstr("num_ops 17"));
  EXPECT_THAT(refusal({TrivialAugmentWide{.num_magnitude_bins = 1}}), HasSubstr("num_magnitude_bins 1"));
  EXPECT_THAT(refusal({GaussianBlur{.kernel_width = 4, .kernel_height = 3}}), HasSubstr("[4, 3]"));
  EXPECT_THAT(refusal({GaussianBlur{.sigma = {0, 1}}}), HasSubstr("sigma [0, 1]"));
  EXPECT_THAT(refusal({RandomErasing{.scale_min = 0.5, .scale_max = 0.2}}), HasSubstr("scale [0.5, 0.2]"));
  EXPECT_THAT(refusal({RandomErasing{.value = {1, 2}}}), HasSubstr("2 values for 3 channels"));
  EXPECT_THAT(refusal({RandomErasing{.value = {0.5}}}), HasSubstr("whole numbers from 0 to 255"));
  EXPECT_THAT(refusal({RandomErasing{.random = true}}), HasSubstr("random needs a float output"));
}

TEST(RandomErasing, IsTheLastTransform) {
  EXPECT_EQ(refusal({kNormalize, RandomErasing{}, RandomErasing{}}, DType::kFloat32), "");
  EXPECT_EQ(refusal({ToY{}, RandomErasing{.value = {16}}}), "");
  EXPECT_THAT(refusal({RandomErasing{}, kNormalize}, DType::kFloat32), HasSubstr("after normalize"));
  EXPECT_THAT(refusal({RandomErasing{}, RandomHorizontalFlip{}}),
              HasSubstr("random_erasing must be the last"));
}

TEST(Augmentations, GoldenDrawsStayAsTheyAre) {
  // A change here changes every user's stream: it needs a new algorithm version in the fingerprint.
  const auto plan = Plan::compile(chain({CenterCrop{{90, 80}}, kJitter, RandomGrayscale{0.5}, RandAugment{},
                                         TrivialAugmentWide{}, GaussianBlur{3, 3}, RandomErasing{.p = 1}}));
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

std::vector<Stage> stages(std::vector<Transform> transforms) {
  std::vector<Stage> made;
  stages_of(drawn(chain(std::move(transforms)), {100, 60}, {1, 2, 3}), {100, 60}, made);
  return made;
}

TEST(Stages, EndWithColoursWhateverFlipsSurroundThem) {
  const auto one = stages({RandomHorizontalFlip{1}, CenterCrop{{40, 40}}, kJitter, RandomVerticalFlip{1},
                           RandomGrayscale{1}, RandomRotate90{}});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].ops.size(), 5U);
  EXPECT_EQ(stages({kJitter, CenterCrop{{40, 40}}}).size(), 2U);
  EXPECT_EQ(stages({kJitter, Resize{.size = {40, 40}}, kJitter}).size(), 2U);
  EXPECT_EQ(stages({GaussianBlur{3, 3}, RandomHorizontalFlip{1}}).size(), 2U) << "sums are not symmetric";
}

TEST(Augmentations, InTwoPartsGiveTheRowOfRenderAndEndThePrefix) {
  std::vector<PlanConfig> configs;
  for (const Transform& t :
       std::vector<Transform>{kJitter, RandomGrayscale{0.5}, RandAugment{.num_ops = 3},
                              TrivialAugmentWide{.warp = {.bilinear = true}}, GaussianBlur{5, 3},
                              RandomErasing{.p = 1, .value = {3, 4, 5}}})
    configs.push_back(chain({Resize{.size = {50, 64}}, t}));
  configs.push_back(chain(
      {Resize{.size = {50, 64}}, kJitter, RandomHorizontalFlip{}, RandAugment{}, RandomCrop{.size = {40, 40}},
       TrivialAugmentWide{}, kNormalize, RandomErasing{.p = 1, .random = true}},
      {DType::kFloat16, PixelLayout::kNhwc}));
  Scratch scratch;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const auto plan = Plan::compile(configs[i]).value();
    EXPECT_THAT(plan.prefix(), testing::EndsWith("resize(0,50x64,0,0)"));
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

TEST(Augmentations, OfAMaskAreTheGeometricOnes) {
  StreamPlan stream;
  stream.chain = chain({CenterCrop{{32, 32}}, kJitter, RandomGrayscale{1}, GaussianBlur{3, 3},
                        RandAugment{.num_ops = 4}, RandomErasing{.p = 1}});
  stream.only.resize(stream.chain.transforms.size());
  const PlanConfig mask = stream.chain_of("mask", true);
  for (const std::size_t i : {1U, 2U, 3U, 5U})
    EXPECT_TRUE(std::holds_alternative<NotHere>(mask.transforms[i]));
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

TEST(Augmentations, MoveAsManyPixelsMoreAsTheScaleSays) {
  auto config = chain({CenterCrop{{32, 32}}, RandAugment{.num_ops = 16}});
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
  const auto plan = Plan::compile(chain({RandomResizedCrop{.size = {48, 40}}, RandAugment{.num_ops = 3},
                                         kJitter, TrivialAugmentWide{}, GaussianBlur{3, 5}}))
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
        Plan::compile(chain({kJitter, RandAugment{.num_ops = 16, .warp = {.bilinear = true}},
                             TrivialAugmentWide{}, Resize{.size = {3, 3}}, RandAugment{.num_ops = 16},
                             RandomErasing{.p = 1, .scale_max = 1}}))
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
