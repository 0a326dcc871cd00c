// What a server says of rows that are made on the device is checked before anything is computed from it.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "clientlib/gpu/resident/plan.h"
#include "clientlib/gpu/rows/plan.h"

namespace headrace::gpu {
namespace {

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
      {"field 7 is to be the picture", [](StreamInfo&, DeviceImage& r) { r.field = 7; }},
      {"field 'label', which is no image", [](StreamInfo&, DeviceImage& r) { r.field = 1; }},
      {"is ragged",
       [](StreamInfo& i, DeviceImage&) {
         i.fields[1].kind = FieldKind::kRagged;
         i.fields[1].ragged_capacity = 4;
       }},
      {"channels", [](StreamInfo&, DeviceImage& r) { r.channels = 2; }},
      {"each side", [](StreamInfo&, DeviceImage& r) { r.height = 0; }},
      {"each side", [](StreamInfo&, DeviceImage& r) { r.width = kMost; }},
      {"each side", [](StreamInfo&, DeviceImage& r) { r.moves[0].height = -5; }},
      {"a flip of", [](StreamInfo&, DeviceImage& r) { r.moves[1].height = 31; }},
      {"a flip with p", [](StreamInfo&, DeviceImage& r) { r.moves[1].p = std::nan(""); }},
      {"a turn of",
       [](StreamInfo&, DeviceImage& r) {
         r.moves[1] = {.kind = Move::Kind::kTurn, .height = 32, .width = 30};
       }},
      {"a crop at", [](StreamInfo&, DeviceImage& r) { r.moves[0].top = -kMost; }},
      {"a crop at", [](StreamInfo&, DeviceImage& r) { r.moves[0].rows = 0; }},
      {"a crop at", [](StreamInfo&, DeviceImage& r) { r.moves[0].columns = kMost; }},
      {"does not know", [](StreamInfo&, DeviceImage& r) { r.moves[0].kind = static_cast<Move::Kind>(9); }},
      {"9 moves", [](StreamInfo&, DeviceImage& r) { r.moves.assign(9, r.moves[1]); }},
      {"says otherwise",
       [](StreamInfo&, DeviceImage& r) {
         r.moves.pop_back();
         r.moves[0].width = 31;
       }},
      {"says otherwise", [](StreamInfo&, DeviceImage& r) { r.layout = pixels::PixelLayout::kNhwc; }},
      {"batches of int8", [](StreamInfo& i, DeviceImage&) { i.fields[0].dtype = DType::kInt8; }},
      {"means", [](StreamInfo&, DeviceImage& r) { r.mean.pop_back(); }},
      {"means", [](StreamInfo& i, DeviceImage&) { i.fields[0].dtype = DType::kUInt8; }},
      {"mean or std", [](StreamInfo&, DeviceImage& r) { r.std[1] = 0; }},
      {"mean or std",
       [](StreamInfo&, DeviceImage& r) { r.mean[1] = std::numeric_limits<double>::infinity(); }},
      {"colors", [](StreamInfo&, DeviceImage& r) { r.contrasts = 1; }},
      {"random_erasing", [](StreamInfo&, DeviceImage& r) { r.erased = {0}; }},
      {"samples of", [](StreamInfo& i, DeviceImage&) { i.samples = std::uint64_t{1} << 60; }},
      {"without samples", [](StreamInfo& i, DeviceImage&) { i.samples = 0; }},
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

TEST(RowPlan, RefusesWhatComesWithNoRow) {
  const FieldSpec field{"image", DType::kFloat16, FieldKind::kDense, {3, 32, 32}};
  const auto wrong = [&](const DeviceImage& image) {
    RowJob job;
    return plan_rows(image, field, Drawn::kByServer, job);
  };
  DeviceImage image = cifars_image();
  EXPECT_EQ(wrong(image), "a crop, which the server makes");
  image.moves.erase(image.moves.begin());
  EXPECT_EQ(wrong(image), "");
  image.contrasts = 9;
  EXPECT_EQ(wrong(image), "9 contrasts: at most 8");
  image.contrasts = 1;
  image.erased = {1, 2};
  EXPECT_EQ(wrong(image), "2 values of random_erasing for 3 channels");
}

}  // namespace
}  // namespace headrace::gpu
