// The division of a chain between server and device.
#include "server/transform/device_rows.h"
#include "server/transform/op.h"
#include "server/transform/ops/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace headrace::server::transform {
namespace {

using ::testing::HasSubstr;

const Transform kCrop = make_op("random_resized_crop", {{"size", {32, 32}}});
const Transform kNormalize = make_op("normalize", {{"mean", {0.5, 0.5, 0.5}}, {"std", {0.5, 0.5, 0.5}}});
const Transform kJitter =
    make_op("color_jitter", {{"brightness", {0.5, 1.5}}, {"contrast", {0.5, 1.5}}, {"hue", {-0.1, 0.1}}});

Result<DeviceRows> split(std::vector<Transform> chain, DType dtype = DType::kFloat32) {
  const PlanConfig config{.transforms = std::move(chain), .output = {dtype, PixelLayout::kNchw}};
  const auto whole = Plan::compile(config);
  if (!whole) return fail(whole.error());
  return DeviceRows::split(config, *whole);
}

TEST(DeviceRowsSplit, LeavesFlipsTurnsColorsAndValuesToTheDevice) {
  const auto rows = or_throw(
      split({kCrop, make_op("random_horizontal_flip"), kJitter, make_op("random_rotate90"), kNormalize}));
  const DeviceImage& image = rows.image();
  EXPECT_EQ(image.height, 32);
  EXPECT_EQ(image.width, 32);
  EXPECT_EQ(image.channels, 3);
  ASSERT_EQ(image.moves.size(), 2U);
  EXPECT_EQ(image.moves[0].kind, Move::Kind::kHorizontalFlip);
  EXPECT_EQ(image.moves[0].stage, 1U);
  EXPECT_EQ(image.moves[1].kind, Move::Kind::kTurn);
  EXPECT_EQ(image.color_steps, 3U);
  EXPECT_EQ(image.contrasts, 1U);
  EXPECT_EQ(image.mean, std::vector<double>(3, 0.5));
  EXPECT_EQ(rows.pictures().row_bytes(), 32U * 32 * 3);
  EXPECT_EQ(rows.pictures().image_field().dtype, DType::kUInt8);
  EXPECT_EQ(rows.pictures().image_field().shape, (std::vector<std::int64_t>{32, 32, 3}));
}

TEST(DeviceRowsSplit, LetsTheServerDoWhatComesBeforeATransformThatItHasToDo) {
  const auto rows =
      or_throw(split({kCrop, make_op("random_horizontal_flip"),
                      make_op("gaussian_blur", {{"kernel_size", {3, 3}}}), make_op("random_grayscale")}));
  EXPECT_TRUE(rows.image().moves.empty());
  EXPECT_EQ(rows.image().color_steps, 1U);
  EXPECT_EQ(rows.image().contrasts, 0U);
  const auto last = or_throw(split({kJitter, kCrop}));
  EXPECT_EQ(last.image().contrasts, 0U);
}

TEST(DeviceRowsSplit, LetsTheServerDoMoreThanARowHasRoomFor) {
  std::vector<Transform> chain{kCrop};
  for (int i = 0; i < 4; ++i) chain.emplace_back(kJitter);  // three steps each
  const auto rows = or_throw(split(chain));
  EXPECT_EQ(rows.image().contrasts, 2U);
  chain = {kCrop};
  for (int i = 0; i < 10; ++i) chain.emplace_back(make_op("random_vertical_flip"));
  EXPECT_EQ(or_throw(split(chain)).image().moves.size(), std::size_t{kMaxMoves});
}

TEST(DeviceRowsSplit, HasAStepForAllThatATransformOfTheDeviceDraws) {
  // The arguments of transforms that require some, or that do nothing without.
  const nlohmann::json arguments = {
      {"resize", {{"size", {32, 32}}}},
      {"center_crop", {{"size", {32, 32}}}},
      {"random_resized_crop", {{"size", {32, 32}}}},
      {"random_crop", {{"size", {32, 32}}}},
      {"color_jitter",
       {{"brightness", {0, 2}}, {"contrast", {0, 2}}, {"saturation", {0, 2}}, {"hue", {-0.5, 0.5}}}},
      {"gaussian_blur", {{"kernel_size", {3, 3}}}},
      {"normalize", {{"mean", {0.5, 0.5, 0.5}}, {"std", {0.5, 0.5, 0.5}}}}};
  int on_device = 0;
  for (const std::string& name : op_names()) {
    const auto op = make_op(name, arguments.value(name, nlohmann::json::object()));
    if (!op->device_share() || op->traits().stage != Op::Stage::kPixels) continue;
    ++on_device;
    const auto rows = or_throw(split({kCrop, op}));
    std::vector<Step> memory;
    for (std::uint64_t position = 0; position < 200; ++position) {
      RowSteps drawn;
      ASSERT_NO_THROW(drawn = rows.draw({1, 2, position}, memory)) << name;
      EXPECT_LE(drawn.step_count, rows.image().color_steps) << name;
      EXPECT_LE(std::count_if(drawn.steps, drawn.steps + drawn.step_count,
                              [](const PixelStep& step) { return step.kind == PixelStep::Kind::kContrast; }),
                rows.image().contrasts)
          << name;
    }
  }
  EXPECT_EQ(on_device, 5) << "2 flips, random_rotate90, color_jitter, random_grayscale";
}

TEST(DeviceRowsSplit, ErasesConstantValues) {
  const auto rows =
      or_throw(split({kCrop, kNormalize, make_op("random_erasing", {{"p", 1}, {"value", {0.5}}})}));
  EXPECT_EQ(rows.image().erased, std::vector<double>{0.5});
  std::vector<Step> memory;
  const RowSteps steps = rows.draw({1, 2, 3}, memory);
  EXPECT_GT(steps.erased_width, 0);
  EXPECT_LE(steps.erased_left + steps.erased_width, 32);
}

TEST(DeviceRowsSplit, DrawsForARowAlone) {
  const auto rows = or_throw(split({kCrop, make_op("random_horizontal_flip"), kJitter, kNormalize}));
  std::vector<Step> memory;
  int flipped = 0;
  for (std::uint64_t position = 0; position < 100; ++position) {
    const RowSteps steps = rows.draw({1, 2, position}, memory);
    flipped += steps.turns[0];
    ASSERT_EQ(steps.step_count, 3U);
    ASSERT_EQ(steps.erased_width, 0);
    const RowSteps again = rows.draw({1, 2, position}, memory);
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): padding is in the ring, too
    ASSERT_EQ(std::memcmp(&steps, &again, sizeof steps), 0);
  }
  EXPECT_GT(flipped, 30);
  EXPECT_LT(flipped, 70);
}

TEST(DeviceRowsSplit, RefusesWhatTheDeviceDoesNot) {
  const auto refusal = [](std::vector<Transform> chain) {
    const auto rows = split(std::move(chain));
    EXPECT_FALSE(rows.has_value());
    return rows ? std::string() : rows.error().message;
  };
  EXPECT_THAT(refusal({kCrop, make_op("random_erasing", {{"value", "random"}})}),
              HasSubstr("`value: random`"));
  EXPECT_THAT(refusal({kCrop, make_op("random_erasing"), make_op("random_erasing")}),
              HasSubstr("can erase only once"));
  EXPECT_THAT(refusal({make_op("random_resized_crop", {{"size", {8, 5000}}})}),
              HasSubstr("expected at most 4096 pixels a side"));
}

}  // namespace
}  // namespace headrace::server::transform
