// Device transforms without a server: what is refused, and the colours that the kernel shares with nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "headrace/gpu_transform.h"

namespace headrace::gpu {
namespace {

using pixels::PixelStepKind;
using pixels::RowSteps;
using ::testing::HasSubstr;

constexpr std::int32_t kWidth = 20, kHeight = 10;

/// One picture, of which a row of 8 x 6 pixels is made.
struct Case {
  TransformOutput output{.height = 6, .width = 8, .dtype = DType::kUInt8};
  std::vector<std::byte> pixels = std::vector<std::byte>(kWidth * kHeight * 3, std::byte{7});
  PictureAt picture{.offset = 0, .height = kHeight, .width = kWidth};
  RowSteps steps;
  std::vector<std::byte> out = std::vector<std::byte>(6 * 8 * 3 * 4);
  std::int32_t channels = 3;

  Case() {
    steps.crop = {3, 2, 8, 6};
    steps.resized_width = 8;
    steps.resized_height = 6;
    steps.window = {0, 0, 8, 6};
  }
  [[nodiscard]] Result<void> run() {
    auto transform = DeviceTransform::open("host", output);
    if (!transform) return fail(transform.error());
    const PictureBatch batch{pixels.data(), pixels.size(), {&picture, 1}, channels};
    return transform->launch(batch, {&steps, 1}, out.data(), out.size(), 0);
  }
  [[nodiscard]] std::string refusal() {
    const auto done = run();
    EXPECT_FALSE(done.has_value());
    if (done) return {};
    EXPECT_EQ(done.error().code, ErrorCode::kInvalidArgument);
    return done.error().message;
  }
};

template <class Change>
std::string refusal_after(Change&& change) {
  Case one;
  change(one);
  return one.refusal();
}

TEST(GpuTransform, CutsAPicture) {
  Case one;
  for (std::size_t i = 0; i < one.pixels.size(); ++i) one.pixels[i] = static_cast<std::byte>(i);
  ASSERT_TRUE(one.run().has_value());
  for (std::size_t y = 0; y < 6; ++y)
    for (std::size_t x = 0; x < 8; ++x)
      for (std::size_t c = 0; c < 3; ++c)
        EXPECT_EQ(one.out[(c * 6 + y) * 8 + x], one.pixels[((y + 2) * kWidth + x + 3) * 3 + c]);
}

TEST(GpuTransform, RefusesPicturesThatReachBeyondTheBatch) {
  EXPECT_THAT(refusal_after([](Case& one) { one.picture.offset = 1; }),
              HasSubstr("row 0: a picture of 20 x 10"));
  EXPECT_THAT(
      refusal_after([](Case& one) { one.picture.offset = std::numeric_limits<std::uint64_t>::max(); }),
      HasSubstr("reaches beyond the batch's 600 bytes"));
  EXPECT_THAT(refusal_after([](Case& one) { one.picture.height = 11; }), HasSubstr("reaches beyond"));
  EXPECT_THAT(refusal_after([](Case& one) { one.picture.width = 0; }), HasSubstr("between 1 and 65535"));
  EXPECT_THAT(refusal_after([](Case& one) { one.picture.width = -20; }), HasSubstr("between 1 and 65535"));
  EXPECT_THAT(refusal_after([](Case& one) { one.picture.height = std::numeric_limits<std::int32_t>::max(); }),
              HasSubstr("between 1 and 65535"));
}

TEST(GpuTransform, RefusesStepsOfAnotherKind) {
  EXPECT_THAT(refusal_after([](Case& one) { one.steps.version = 2; }),
              HasSubstr("version 2, this Headrace knows 1"));
  EXPECT_THAT(refusal_after([](Case& one) { one.steps.flags = 32; }), HasSubstr("unknown flags 0x20"));
  EXPECT_THAT(refusal_after([](Case& one) { one.steps.interpolation = pixels::Interpolation{3}; }),
              HasSubstr("interpolation 3"));
  EXPECT_THAT(refusal_after([](Case& one) { one.steps.padding = pixels::PaddingMode{4}; }),
              HasSubstr("padding mode 4"));
  EXPECT_THAT(refusal_after([](Case& one) { one.steps.op_count = 9; }), HasSubstr("9 pixel steps"));
  EXPECT_THAT(refusal_after([](Case& one) {
                one.steps.op_count = 2;
                one.steps.ops[1].kind = PixelStepKind::kCount;
              }),
              HasSubstr("kind 6"));
  EXPECT_THAT(refusal_after([](Case& one) {
                one.steps.op_count = 1;
                one.steps.ops[0].factor = std::numeric_limits<float>::quiet_NaN();
              }),
              HasSubstr("not finite"));
}

TEST(GpuTransform, RefusesGeometryThatLeavesItsBounds) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto resized = [](Case& one) { one.steps.flags = RowSteps::kResized; };
  EXPECT_THAT(
      refusal_after([&](Case& one) { resized(one), one.steps.crop.left = 13; }),
      HasSubstr(
          "what is read of the crop, 8 x 6 pixels at (13, 2), does not lie within the picture of 20 x 10"));
  EXPECT_THAT(refusal_after([&](Case& one) { resized(one), one.steps.crop.top = kMost; }),
              HasSubstr("a crop of"));
  EXPECT_THAT(refusal_after([&](Case& one) { resized(one), one.steps.crop.left = -1; }),
              HasSubstr("the crop"));
  EXPECT_THAT(refusal_after([&](Case& one) { resized(one), one.steps.crop.width = kMost; }),
              HasSubstr("a crop of"));
  EXPECT_THAT(refusal_after([&](Case& one) { resized(one), one.steps.resized_width = kMost; }),
              HasSubstr("a resize to 2147483647 x 6"));
  EXPECT_THAT(refusal_after([&](Case& one) { resized(one), one.steps.window.left = 1; }),
              HasSubstr("the window"));
  EXPECT_THAT(
      refusal_after([](Case& one) { one.steps.crop.left = std::numeric_limits<std::int32_t>::min(); }),
      HasSubstr("a crop of"));
  EXPECT_THAT(refusal_after([](Case& one) { one.steps.crop.width = 9; }), HasSubstr("without a resize"));
  EXPECT_THAT(refusal_after([](Case& one) { one.steps.window.top = 1; }), HasSubstr("without a resize"));
  EXPECT_THAT(refusal_after([](Case& one) { one.steps.flags = RowSteps::kTransposed; }),
              HasSubstr("6 x 8 pixels, the output's rows have 8 x 6"));
}

TEST(GpuTransform, RefusesOutputsThatCannotBe) {
  EXPECT_THAT(refusal_after([](Case& one) { one.output.dtype = DType::kInt32; }), HasSubstr("dtype int32"));
  EXPECT_THAT(refusal_after([](Case& one) { one.output.channels = 2; }), HasSubstr("2 channels"));
  EXPECT_THAT(refusal_after([](Case& one) { one.output.height = 0; }), HasSubstr("between 1 and 16384"));
  EXPECT_THAT(refusal_after([](Case& one) { one.output.mean = {0.5}, one.output.std = {0.5}; }),
              HasSubstr("float output"));
  const auto normalized = [](Case& one, std::vector<double> mean, std::vector<double> std) {
    one.output.dtype = DType::kFloat32;
    one.output.mean = std::move(mean);
    one.output.std = std::move(std);
  };
  EXPECT_THAT(refusal_after([&](Case& one) { normalized(one, {0.5}, {0.5}); }), HasSubstr("1 means for 3"));
  EXPECT_THAT(refusal_after([&](Case& one) { normalized(one, {0, 0, 0}, {1, 0, 1}); }), HasSubstr("above 0"));
  EXPECT_THAT(refusal_after([](Case& one) { one.channels = 1; }), HasSubstr("gray pictures"));
  EXPECT_THAT(refusal_after([](Case& one) { one.out.resize(100); }),
              HasSubstr("need 144 bytes, the output has 100"));
}

TEST(GpuTransform, NamesDevicesThatAreNotThere) {
  const auto open = [](std::string_view name) {
    const auto transform = DeviceTransform::open(name, {.height = 6, .width = 8});
    EXPECT_FALSE(transform.has_value());
    return transform ? ErrorCode::kInternal : transform.error().code;
  };
  EXPECT_EQ(open("tpu"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(open("cuda:x"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(open("cuda:99"), ErrorCode::kEnvironment);
}

TEST(GpuTransform, ShrinksAPictureFarOrSaysThatItCannot) {
  // Of one colour: so is what is made of it, whatever the chunks are.
  constexpr std::int32_t kSide = 3000;
  Case one;
  one.pixels.assign(std::size_t{kSide} * kSide * 3, std::byte{200});
  one.picture = {0, kSide, kSide};
  one.steps.flags = RowSteps::kResized;
  one.steps.interpolation = pixels::Interpolation::kBicubic;
  one.steps.crop = {0, 0, kSide, kSide};
  ASSERT_TRUE(one.run().has_value()) << one.run().error().message;
  for (std::size_t i = 0; i < 6 * 8 * 3; ++i) ASSERT_EQ(one.out[i], std::byte{200}) << i;

  constexpr std::int32_t kLong = 60'000;
  one.pixels.assign(std::size_t{kLong} * 3, std::byte{200});
  one.picture = {0, kLong, 1};
  one.steps.crop = {0, 0, 1, kLong};
  one.output.height = one.output.width = 1;
  one.steps.resized_width = one.steps.resized_height = 1;
  one.steps.window = {0, 0, 1, 1};
  EXPECT_THAT(one.refusal(), HasSubstr("row 0: making 1 x 1 pixels of 1 x 60000 needs more"));
}

}  // namespace
}  // namespace headrace::gpu
