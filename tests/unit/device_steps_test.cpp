// Which part of a chain is left to the device, and why not more of it.
#include "server/transform/device_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clientlib/pixels/colours.h"

namespace headrace::server::transform {
namespace {

using ::testing::HasSubstr;

const RandomResizedCrop kCrop{.size = {32, 32}};

DevicePart part_of(std::vector<Transform> transforms) {
  return device_part({.transforms = std::move(transforms)});
}

decode::Decoded<pixels::RowSteps> steps_of(const PlanConfig& config, std::size_t first = 0,
                                           decode::ImageSize size = {64, 48}, std::uint64_t position = 0) {
  std::vector<Step> steps;
  std::vector<Stage> stages;
  return device_steps(config, first, size, {1, 2, position}, steps, stages);
}

TEST(DevicePart, IsAllOfTheUsualChains) {
  const Normalize normalize{{0, 0, 0}, {1, 1, 1}};
  const ColorJitter jitter{.brightness = Bounds{0.6, 1.4},
                           .contrast = Bounds{0.6, 1.4},
                           .saturation = Bounds{0.6, 1.4},
                           .hue = Bounds{-0.1, 0.1}};
  const std::vector<std::vector<Transform>> chains{
      {kCrop, RandomHorizontalFlip{}, normalize},
      {kCrop, RandomHorizontalFlip{}, jitter, RandomGrayscale{}, normalize},
      {Resize{.shorter = 256}, CenterCrop{{224, 224}}, normalize},
      {RandomCrop{.size = {32, 32}, .left = 4, .top = 4, .right = 4, .bottom = 4}, RandomHorizontalFlip{}},
      {RandomCrop{.size = {48, 48}}, RandomHorizontalFlip{}, RandomVerticalFlip{}, RandomRotate90{}, ToY{}},
      {jitter, RandomHorizontalFlip{}, NotHere{}}};
  for (const auto& chain : chains) {
    const auto part = part_of(chain);
    EXPECT_EQ(part.first, 0U) << part.reason;
    EXPECT_EQ(part.reason, "");
  }
}

TEST(DevicePart, SaysWhatKeepsItShort) {
  const auto expect = [](std::vector<Transform> chain, std::size_t first, const char* reason) {
    const auto part = part_of(std::move(chain));
    EXPECT_EQ(part.first, first) << reason;
    EXPECT_EQ(part.reason, reason);
  };
  expect({kCrop, RandAugment{}, RandomHorizontalFlip{}}, 2, "rand_augment: the device does not know it");
  expect({kCrop, GaussianBlur{.kernel_width = 3, .kernel_height = 3}}, 2,
         "gaussian_blur: the device does not know it");
  expect({kCrop, RandomErasing{}}, 2, "random_erasing: the device does not know it");
  expect({RandomHorizontalFlip{}, kCrop}, 1, "random_resized_crop: a resize after a flip or a turn");
  expect({Resize{.size = {64, 64}}, kCrop}, 1, "random_resized_crop: a second resize");
  expect({RandomGrayscale{}, CenterCrop{{8, 8}}}, 1, "center_crop: a crop after colours have changed");
  expect({RandomGrayscale{}, kCrop}, 1, "random_resized_crop: a resize after colours have changed");
  expect({Resize{.shorter = 30}, CenterCrop{{32, 32}}}, 1,
         "center_crop: a crop that may pad after another crop or a resize");
  expect({CenterCrop{{40, 40}}, Resize{.size = {32, 32}}}, 1, "resize: a resize after a crop that may pad");
  PlanConfig gray{.transforms = {RandomCrop{.size = {8, 8}, .left = 1, .fill = {1, 2, 3}}}, .channels = 1};
  EXPECT_EQ(device_part(gray).reason, "random_crop: a coloured fill of gray pictures");
}

TEST(DevicePart, KnowsTheSizeOfEveryPicture) {
  const PlanConfig config{.transforms = {CenterCrop{{40, 40}}, Resize{.size = {32, 32}}}, .input = {48, 48}};
  EXPECT_EQ(device_part(config).first, 0U);
}

TEST(DeviceSteps, RefuseByNameWhatTheDeviceDoesNot) {
  const auto refusal = [](const PlanConfig& config, decode::ImageSize size = {64, 48}) {
    for (std::uint64_t position = 0; position < 20; ++position)
      if (const auto steps = steps_of(config, 0, size, position); !steps) {
        EXPECT_EQ(steps.error().reason, BadReason::kUnsupported);
        return steps.error().detail;
      }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(refusal({.transforms = {kCrop, GaussianBlur{.kernel_width = 3, .kernel_height = 3}}}),
              HasSubstr("gaussian_blur on the device"));
  EXPECT_THAT(refusal({.transforms = {kCrop, TrivialAugmentWide{}}}),
              HasSubstr("trivial_augment_wide on the device"));
  EXPECT_THAT(refusal({.transforms = {kCrop, RandomErasing{.p = 1}}}),
              HasSubstr("random_erasing on the device"));
  EXPECT_THAT(
      refusal({.transforms = {RandomHorizontalFlip{}, kCrop}}),
      HasSubstr("2 passes on the device, which makes one: random_resized_crop: a resize after a flip"));
  EXPECT_THAT(refusal({.transforms = {RandomCrop{.size = {80, 80}}}}), HasSubstr("pad_if_needed"));
}

TEST(DeviceSteps, AreThoseOfTheChainsEnd) {
  // A draw is keyed by its transform's place in the whole chain.
  const PlanConfig whole{.transforms = {RandAugment{}, kCrop, RandomHorizontalFlip{}}};
  const PlanConfig same{.transforms = {NotHere{}, kCrop, RandomHorizontalFlip{}}};
  for (std::uint64_t position = 0; position < 50; ++position) {
    const auto end = steps_of(whole, 1, {64, 48}, position);
    const auto all = steps_of(same, 0, {64, 48}, position);
    ASSERT_TRUE(end && all);
    EXPECT_EQ(end->crop.left, all->crop.left);
    EXPECT_EQ(end->crop.width, all->crop.width);
    EXPECT_EQ(end->flags, all->flags);
  }
}

}  // namespace
}  // namespace headrace::server::transform
