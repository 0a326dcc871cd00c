// The server's description of rows that the device computes is checked before anything is computed from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "clientlib/gpu/resident/plan.h"
#include "clientlib/gpu/rows/affine_values.h"
#include "clientlib/gpu/rows/plan.h"
#include "clientlib/pixels/values.h"

namespace headrace::gpu {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

DeviceImage cifars_image() {
  return {.height = 32,
          .width = 32,
          .channels = 3,
          .moves = {{.height = 32, .width = 32, .top = -2, .left = -2, .rows = 5, .columns = 5},
                    {.kind = Move::Kind::kHorizontalFlip, .height = 32, .width = 32, .p = 0.5}},
          .mean = {0.5, 0.5, 0.5},
          .std = {0.2, 0.2, 0.2}};
}

StreamInfo cifar() {
  StreamInfo info{.name = "train", .samples = 50'000, .batch_size = 8};
  info.fields = {{"image", DType::kFloat16, FieldKind::kDense, {3, 32, 32}},
                 {"label", DType::kInt64, FieldKind::kDense, {}}};
  info.residence = Residence{.upload = "train.resident", .image = cifars_image()};
  return info;
}

Result<SetPlan> planned(const StreamInfo& info) {
  const auto layout = BatchLayout::plan(info.fields, info.batch_size);
  if (!layout) return fail(layout.error());
  return plan_set(info, *layout);
}

TEST(SetPlan, LaysFieldsOfTheSetOneBehindTheOther) {
  const auto plan = planned(cifar());
  ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
  EXPECT_EQ(plan->fields[0].spec.dtype, DType::kUInt8);
  EXPECT_EQ(plan->fields[0].spec.shape, (std::vector<std::int64_t>{32, 32, 3}));
  EXPECT_EQ(plan->fields[0].offset, 0U);
  EXPECT_EQ(plan->fields[1].offset, 50'000U * 3072);
  EXPECT_EQ(plan->bytes, 50'000U * (3072 + sizeof(std::int64_t)) + 128);  // a multiple of 256
  EXPECT_EQ(plan->job.fields[0].unit, 8U);
}

TEST(SetPlan, RefusesWhatWouldLeadOutOfTheSetOrABatch) {
  struct Lie {
    const char* says;
    std::function<void(StreamInfo&, DeviceImage&)> tell;
  };
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  const std::vector<Lie> lies{
      {"names field 7 as the image", [](StreamInfo&, DeviceImage& r) { r.field = 7; }},
      {"field 'label': expected an image (dense, 3 dimensions), found a dense field",
       [](StreamInfo&, DeviceImage& r) { r.field = 1; }},
      {"is ragged",
       [](StreamInfo& i, DeviceImage&) {
         i.fields[1].kind = FieldKind::kRagged;
         i.fields[1].ragged_capacity = 4;
       }},
      {"channels", [](StreamInfo&, DeviceImage& r) { r.channels = 2; }},
      {"pixels a side", [](StreamInfo&, DeviceImage& r) { r.height = 0; }},
      {"pixels a side", [](StreamInfo&, DeviceImage& r) { r.width = kMost; }},
      {"pixels a side", [](StreamInfo&, DeviceImage& r) { r.moves[0].height = -5; }},
      {"a flip of", [](StreamInfo&, DeviceImage& r) { r.moves[1].height = 31; }},
      {"a flip has p", [](StreamInfo&, DeviceImage& r) { r.moves[1].p = std::nan(""); }},
      {"a 90-degree rotation of",
       [](StreamInfo&, DeviceImage& r) {
         r.moves[1] = {.kind = Move::Kind::kTurn, .height = 32, .width = 30};
       }},
      {"a crop has", [](StreamInfo&, DeviceImage& r) { r.moves[0].top = -kMost; }},
      {"a crop has", [](StreamInfo&, DeviceImage& r) { r.moves[0].rows = 0; }},
      {"a crop has", [](StreamInfo&, DeviceImage& r) { r.moves[0].columns = kMost; }},
      {"this client does not know",
       [](StreamInfo&, DeviceImage& r) { r.moves[0].kind = static_cast<Move::Kind>(9); }},
      {"9 crops, flips and rotations: expected at most 8",
       [](StreamInfo&, DeviceImage& r) { r.moves.assign(9, r.moves[1]); }},
      {"but the field has",
       [](StreamInfo&, DeviceImage& r) {
         r.moves.pop_back();
         r.moves[0].width = 31;
       }},
      {"but the field has", [](StreamInfo&, DeviceImage& r) { r.layout = pixels::PixelLayout::kNhwc; }},
      {"dtype int8: expected uint8", [](StreamInfo& i, DeviceImage&) { i.fields[0].dtype = DType::kInt8; }},
      {"means", [](StreamInfo&, DeviceImage& r) { r.mean.pop_back(); }},
      {"means", [](StreamInfo& i, DeviceImage&) { i.fields[0].dtype = DType::kUInt8; }},
      {"not finite", [](StreamInfo&, DeviceImage& r) { r.std[1] = 0; }},
      {"not finite",
       [](StreamInfo&, DeviceImage& r) { r.mean[1] = std::numeric_limits<double>::infinity(); }},
      {"color changes", [](StreamInfo&, DeviceImage& r) { r.color_steps = 1; }},
      {"random_erasing", [](StreamInfo&, DeviceImage& r) { r.erased = {0}; }},
      {"samples of", [](StreamInfo& i, DeviceImage&) { i.samples = std::uint64_t{1} << 60; }},
      {"it has 0 samples", [](StreamInfo& i, DeviceImage&) { i.samples = 0; }},
      {"more than 16 fields",
       [](StreamInfo& i, DeviceImage&) {
         for (int f = 0; f < 17; ++f)
           i.fields.push_back({"f" + std::to_string(f), DType::kInt8, FieldKind::kDense, {}});
       }},
  };
  for (const Lie& lie : lies) {
    StreamInfo info = cifar();
    lie.tell(info, *info.residence->image);
    const auto plan = planned(info);
    ASSERT_FALSE(plan.has_value()) << lie.says;
    EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(plan.error().message.find(lie.says), std::string::npos) << plan.error().message;
  }
}

TEST(SetPlan, RefusesMoreBytesThanCanBeCounted) {
  StreamInfo info = cifar();
  info.samples = (std::uint64_t{1} << 36) + 256;
  info.residence->image.reset();
  info.fields = {{"x", DType::kUInt8, FieldKind::kDense, {(std::int64_t{1} << 28) - 1}}};
  const auto plan = planned(info);
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message.find("samples of"), std::string::npos) << plan.error().message;
}

TEST(RowPlan, ConvertsHalvesByAnAffineFunctionWhereOneIsExact) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> mean(0.0F, 1.0F), std(0.05F, 1.0F);
  for (const auto type : {pixels::ValueType::kFloat16, pixels::ValueType::kBFloat16}) {
    int found = 0;
    for (int round = 0; round < 1000; ++round) {
      const pixels::Normalization how{round % 10 != 0, mean(random), std(random)};
      AffineValue affine;
      if (!find_affine(how, type, affine)) continue;
      ++found;
      for (int byte = 0; byte < 256; ++byte) {
        const float value = std::fmaf(static_cast<float>(byte) / 256, affine.scale, affine.offset);
        ASSERT_EQ(pixels::bits_of(value, type),
                  pixels::value_bits(static_cast<std::uint8_t>(byte), how, type))
            << "byte " << byte << ", mean " << how.mean << ", std " << how.std;
      }
    }
    EXPECT_GE(found, type == pixels::ValueType::kFloat16 ? 985 : 995) << "of 1000";
  }
}

TEST(RowPlan, ConvertsHalvesByATableWhereNoAffineFunctionIsExact) {
  AffineValue affine;
  EXPECT_FALSE(find_affine({true, 0.5F, 1e-40F}, pixels::ValueType::kBFloat16, affine)) << "it overflows";
  EXPECT_FALSE(find_affine({true, 127 / 255.0F, 1e-3F}, pixels::ValueType::kFloat16, affine))
      << "byte 127 gives 0";
  EXPECT_TRUE(find_affine({true, 0, 1e30F}, pixels::ValueType::kFloat16, affine)) << "all give 0";
}

TEST(RowPlan, SplitsRowsIntoAsManyPartsAsTheDeviceHasRoomFor) {
  RowJob job;
  job.out_height = job.out_width = 224;
  job.element_bytes = 2;
  const auto parts = [&](std::int32_t rows, std::int32_t blocks_at_once) {
    job.rows = rows;
    job.blocks_at_once = blocks_at_once;
    return row_parts(job);
  };
  EXPECT_EQ(parts(1, 1056), 25) << "a run of 8 pixels for each thread";
  EXPECT_EQ(parts(256, 528), 2);
  EXPECT_EQ(parts(256, 1056), 4);
  EXPECT_EQ(parts(100'000, 1056), 1);
  EXPECT_EQ(parts(0, 1), 1);
  job.out_height = job.out_width = 4096;
  EXPECT_EQ(parts(1, 1'000'000), 64) << "the most";
  job.out_height = job.out_width = 1;
  job.field_count = 1;
  job.fields[0] = {.row_bytes = 24'000, .unit = 4};
  EXPECT_EQ(parts(1, 64), 24) << "6000 words";
}

TEST(RowPlan, RefusesWhatComesWithNoRow) {
  const FieldSpec field{"image", DType::kFloat16, FieldKind::kDense, {3, 32, 32}};
  const auto wrong = [&](const DeviceImage& image) {
    RowJob job;
    return plan_rows(image, field, Drawn::kByServer, job);
  };
  DeviceImage image = cifars_image();
  EXPECT_THAT(wrong(image), StartsWith("field 'image': found a crop: expected none"));
  image.moves.erase(image.moves.begin());
  EXPECT_EQ(wrong(image), "");
  image.color_steps = 9;
  EXPECT_EQ(wrong(image), "field 'image': rows have up to 9 color steps: expected at most 8");
  image.color_steps = 1;
  image.contrasts = 2;
  EXPECT_THAT(wrong(image), HasSubstr("rows have up to 2 contrast changes among 1 color steps"));
  image.contrasts = 1;
  image.erased = {1, 2};
  EXPECT_THAT(wrong(image), HasSubstr("random_erasing has 2 values for 3 channels"));
}

}  // namespace
}  // namespace headrace::gpu
