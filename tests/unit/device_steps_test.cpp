// What of a picture is left to the device, and what the server does before it.
#include "server/transform/device_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/transform/plan.h"

namespace headrace::server::transform {
namespace {

using pixels::RowSteps;
using ::testing::HasSubstr;

const RandomResizedCrop kCrop{.size = {32, 32}};
const Normalize kNormalize{{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}};

struct Left {
  LeftPicture picture;
  RenderReport report;
  std::uint64_t asked = 0;  ///< bytes that room was asked for
};

/// Of a picture of 64 x 48 pixels. `room`: bytes that there are.
Left leave(const PlanConfig& config, std::uint64_t position = 0, std::uint64_t room = 1 << 20) {
  const auto plan = or_throw(Plan::compile(config));
  const std::vector<std::uint8_t> pixels(std::size_t{64} * 48 * 3, 7);
  std::vector<std::byte> memory(room), finished(plan.finished_bytes());
  Scratch scratch;
  Left left;
  left.report = plan.leave(decode::ImageData(pixels, {64, 48, 3, false}), {1, 2, position}, scratch,
                           {[&](std::uint64_t bytes) {
                              left.asked = bytes;
                              return bytes <= room ? memory.data() : nullptr;
                            },
                            finished.data()},
                           left.picture);
  return left;
}

TEST(Leave, GivesNoMoreOfAPictureThanTheCropNeeds) {
  std::uint64_t least = UINT64_MAX, most = 0;
  for (std::uint64_t position = 0; position < 50; ++position) {
    const Left left = leave({.transforms = {kCrop, RandomHorizontalFlip{}, kNormalize},
                             .output = {DType::kFloat32, PixelLayout::kNchw}},
                            position);
    ASSERT_EQ(left.report.bad, BadReason::kNone) << left.report.detail;
    EXPECT_FALSE(left.picture.finished);
    const RowSteps& steps = left.picture.steps;
    EXPECT_EQ(steps.crop.left, 0);
    EXPECT_EQ(steps.crop.top, 0);
    EXPECT_EQ(steps.crop.width, left.picture.size.width);
    EXPECT_EQ(steps.crop.height, left.picture.size.height);
    EXPECT_EQ(left.asked, 3 * static_cast<std::uint64_t>(steps.crop.width * steps.crop.height));
    least = std::min(least, left.asked);
    most = std::max(most, left.asked);
  }
  EXPECT_LT(least, 64 * 48 * 3 / 4);
  EXPECT_GT(most, 64 * 48 * 3 / 2);
}

TEST(Leave, GivesNoMoreOfAPictureThanIsKeptOfAResize) {
  const Left left = leave({.transforms = {Resize{.shorter = 32}, CenterCrop{{10, 10}}}});
  ASSERT_FALSE(left.picture.finished);
  EXPECT_LT(left.picture.size.width, 20);
  EXPECT_LT(left.picture.size.height, 20);
  EXPECT_GE(left.picture.size.width, 15);
  EXPECT_EQ(left.picture.steps.crop.width, 64) << "which the weights are of";
  EXPECT_LT(left.picture.steps.crop.left, 0);
}

TEST(Leave, GivesAllOfAPictureWhoseEdgesCount) {
  const Left left = leave(
      {.transforms = {RandomCrop{
           .size = {48, 64}, .left = 4, .top = 4, .right = 4, .bottom = 4, .mode = PaddingMode::kReflect}}});
  EXPECT_EQ(left.asked, 64U * 48 * 3);
  EXPECT_FALSE(left.picture.finished);
  EXPECT_EQ(left.picture.size.width, 64);
}

TEST(Leave, DoesOnTheServerWhatComesBeforeTheLastPass) {
  const Left left = leave({.transforms = {GaussianBlur{.kernel_width = 3, .kernel_height = 3},
                                          CenterCrop{{20, 30}}, RandomGrayscale{1}}});
  ASSERT_FALSE(left.picture.finished) << left.picture.because;
  EXPECT_EQ(left.picture.size.width, 30);
  EXPECT_EQ(left.picture.steps.op_count, 1);
}

TEST(Leave, FinishesOnTheServerWhatTheDeviceDoesNotDo) {
  const auto because = [](const PlanConfig& config) {
    for (std::uint64_t position = 0; position < 20; ++position) {
      const Left left = leave(config, position);
      EXPECT_EQ(left.report.bad, BadReason::kNone) << left.report.detail;
      if (!left.picture.finished) continue;
      EXPECT_EQ(left.picture.size.width, 32);
      EXPECT_EQ(left.picture.steps.window.width, 32);
      return left.picture.because;
    }
    return std::string("all were left");
  };
  EXPECT_THAT(because({.transforms = {kCrop, GaussianBlur{.kernel_width = 3, .kernel_height = 3}}}),
              HasSubstr("an operation on pixels that the kernel does not know"));
  EXPECT_THAT(because({.transforms = {kCrop, TrivialAugmentWide{}}}), HasSubstr("does not know"));
  const ColorJitter jitter{
      .brightness = Bounds{0.5, 1.5}, .contrast = Bounds{0.5, 1.5}, .saturation = Bounds{0.5, 1.5}};
  EXPECT_THAT(because({.transforms = {kCrop, jitter, jitter, jitter}}), HasSubstr("more than 8 operations"));
}

TEST(Leave, FinishesOnTheServerWhatHasNoRoom) {
  const PlanConfig config{.transforms = {CenterCrop{{32, 32}}, ToY{}, Normalize{{0.5}, {0.5}}},
                          .output = {DType::kFloat32, PixelLayout::kNchw}};
  const Left left = leave(config, 0, 32 * 32 * 3 - 1);
  ASSERT_TRUE(left.picture.finished);
  EXPECT_THAT(left.picture.because, HasSubstr("larger than its room"));
  ASSERT_EQ(left.picture.steps.op_count, 1) << "to_y, which is the device's in any case";
  EXPECT_EQ(left.picture.steps.ops[0].kind, pixels::PixelStepKind::kLuma);
}

TEST(Leave, RefusesASampleAsRenderDoes) {
  const Left left = leave({.transforms = {RandomCrop{.size = {80, 80}}}});
  EXPECT_EQ(left.report.bad, BadReason::kUnsupported);
  EXPECT_THAT(left.report.detail, HasSubstr("pad_if_needed"));
}

}  // namespace
}  // namespace headrace::server::transform
