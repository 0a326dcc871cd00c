// What a server says of a resident set is checked before anything is computed from it.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "clientlib/gpu/resident/plan.h"

namespace headrace::gpu {
namespace {

StreamInfo cifar() {
  StreamInfo info{.name = "train", .samples = 50'000, .batch_size = 8};
  info.fields = {{"image", DType::kFloat16, FieldKind::kDense, {3, 32, 32}},
                 {"label", DType::kInt64, FieldKind::kDense, {}}};
  info.residence = Residence{
      .upload = "train.resident",
      .image = "image",
      .height = 32,
      .width = 32,
      .channels = 3,
      .mean = {0.5, 0.5, 0.5},
      .std = {0.2, 0.2, 0.2},
      .steps = {{.height = 32, .width = 32, .top = -2, .left = -2, .rows = 5, .columns = 5},
                {.kind = ResidentStep::Kind::kHorizontalFlip, .height = 32, .width = 32, .p = 0.5}}};
  return info;
}

Result<GatherPlan> planned(const StreamInfo& info) {
  const auto layout = BatchLayout::plan(info.fields, info.batch_size);
  if (!layout) return fail(layout.error());
  return plan_gather(info, *layout);
}

TEST(GatherPlan, LaysFieldsOfTheSetOneBehindTheOther) {
  const auto plan = planned(cifar());
  ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
  EXPECT_EQ(plan->fields[0].spec.dtype, DType::kUInt8);
  EXPECT_EQ(plan->fields[0].spec.shape, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(plan->fields[0].offset, 0U);
  EXPECT_EQ(plan->fields[1].offset, 50'000U * 3072);
  EXPECT_EQ(plan->values_at % 256, 0U);
  EXPECT_GE(plan->values_at, plan->fields[1].offset + 50'000 * sizeof(std::int64_t));
  EXPECT_EQ(plan->bytes, plan->values_at + sizeof plan->values);
  EXPECT_EQ(plan->job.fields[0].unit, 8U);
}

TEST(GatherPlan, RefusesWhatWouldLeadOutOfTheSetOrABatch) {
  struct Lie {
    const char* says;
    std::function<void(StreamInfo&, Residence&)> tell;
  };
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  const std::vector<Lie> lies{
      {"no field 'picture'", [](StreamInfo&, Residence& r) { r.image = "picture"; }},
      {"is ragged",
       [](StreamInfo& i, Residence&) {
         i.fields[1].kind = FieldKind::kRagged;
         i.fields[1].ragged_capacity = 4;
       }},
      {"channels", [](StreamInfo&, Residence& r) { r.channels = 2; }},
      {"each side", [](StreamInfo&, Residence& r) { r.height = 0; }},
      {"each side", [](StreamInfo&, Residence& r) { r.width = kMost; }},
      {"each side", [](StreamInfo&, Residence& r) { r.steps[0].height = -5; }},
      {"a flip of", [](StreamInfo&, Residence& r) { r.steps[1].height = 31; }},
      {"a flip with p", [](StreamInfo&, Residence& r) { r.steps[1].p = std::nan(""); }},
      {"a turn of",
       [](StreamInfo&, Residence& r) {
         r.steps[1] = {.kind = ResidentStep::Kind::kTurn, .height = 32, .width = 30};
       }},
      {"a crop at", [](StreamInfo&, Residence& r) { r.steps[0].top = -kMost; }},
      {"a crop at", [](StreamInfo&, Residence& r) { r.steps[0].rows = 0; }},
      {"a crop at", [](StreamInfo&, Residence& r) { r.steps[0].columns = kMost; }},
      {"does not know",
       [](StreamInfo&, Residence& r) { r.steps[0].kind = static_cast<ResidentStep::Kind>(9); }},
      {"9 steps", [](StreamInfo&, Residence& r) { r.steps.assign(9, r.steps[1]); }},
      {"says otherwise",
       [](StreamInfo&, Residence& r) {
         r.steps.pop_back();
         r.steps[0].width = 31;
       }},
      {"says otherwise", [](StreamInfo&, Residence& r) { r.layout = pixels::PixelLayout::kNhwc; }},
      {"on the device for batches", [](StreamInfo&, Residence& r) { r.stored = DType::kFloat32; }},
      {"on the device for batches",
       [](StreamInfo& i, Residence& r) {
         r.stored = DType::kFloat16;
         i.fields[0].dtype = DType::kFloat32;
       }},
      {"batches of int8", [](StreamInfo& i, Residence&) { i.fields[0].dtype = DType::kInt8; }},
      {"means", [](StreamInfo&, Residence& r) { r.mean.pop_back(); }},
      {"means", [](StreamInfo& i, Residence&) { i.fields[0].dtype = DType::kUInt8; }},
      {"mean or std", [](StreamInfo&, Residence& r) { r.std[1] = 0; }},
      {"mean or std", [](StreamInfo&, Residence& r) { r.mean[1] = std::numeric_limits<double>::infinity(); }},
      {"samples of", [](StreamInfo& i, Residence&) { i.samples = std::uint64_t{1} << 60; }},
      {"samples of",  // 256 bytes less than what can be counted
       [](StreamInfo& i, Residence& r) {
         i.samples = (std::uint64_t{1} << 36) + 256;
         r.image.clear();
         i.fields = {{"x", DType::kUInt8, FieldKind::kDense, {(std::int64_t{1} << 28) - 1}}};
       }},
      {"without samples", [](StreamInfo& i, Residence&) { i.samples = 0; }},
      {"more than 16 fields",
       [](StreamInfo& i, Residence&) {
         for (int f = 0; f < 17; ++f)
           i.fields.push_back({"f" + std::to_string(f), DType::kInt8, FieldKind::kDense, {}});
       }},
  };
  for (const Lie& lie : lies) {
    StreamInfo info = cifar();
    lie.tell(info, *info.residence);
    const auto plan = planned(info);
    ASSERT_FALSE(plan.has_value()) << lie.says;
    EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(plan.error().message.find(lie.says), std::string::npos) << plan.error().message;
  }
}

}  // namespace
}  // namespace headrace::gpu
