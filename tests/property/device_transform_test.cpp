// The kernel's text, run by the host twin, against the server's own path: thousands of chains and pictures.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/device_chains.h"

namespace headrace::server::transform::testing {
namespace {

std::string difference(const ChainBatch& batch, const std::vector<std::byte>& made) {
  const std::size_t row_bytes = batch.output.row_bytes();
  for (std::size_t i = 0; i < made.size(); ++i)
    if (made[i] != batch.expected[i])
      return "row " + std::to_string(i / row_bytes) + ", byte " + std::to_string(i % row_bytes) + " of " +
             std::to_string(row_bytes) + ": " + std::to_string(static_cast<int>(made[i])) + ", not " +
             std::to_string(static_cast<int>(batch.expected[i]));
  return {};
}

void expect_same(const PlanConfig& config, const ChainBatch& batch, std::size_t shift) {
  auto transform = or_throw(gpu::DeviceTransform::open("host", batch.output));
  // Outputs of every alignment, and nothing beside the rows is touched.
  const std::size_t guard = 64, begin = guard + shift * size_of(batch.output.dtype);
  std::vector<std::byte> memory(begin + batch.expected.size() + guard, std::byte{0xA5});
  const auto done =
      transform.launch(batch.view(), batch.steps, memory.data() + begin, batch.expected.size(), 0);
  ASSERT_TRUE(done.has_value()) << done.error().to_string();
  const std::vector<std::byte> made(memory.begin() + static_cast<std::ptrdiff_t>(begin),
                                    memory.end() - static_cast<std::ptrdiff_t>(guard));
  const auto first = batch.steps.front();
  EXPECT_EQ(difference(batch, made), "")
      << "flags " << int{first.flags} << ", " << static_cast<int>(first.interpolation) << ", crop "
      << first.crop.width << " x " << first.crop.height << ", resized " << first.resized_width << " x "
      << first.resized_height << ", window " << first.window.width << " x " << first.window.height << ", ops "
      << int{first.op_count} << " (" << static_cast<int>(first.ops[0].kind) << "), channels "
      << config.channels;
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (i < begin || i >= begin + batch.expected.size()) {
      ASSERT_EQ(memory[i], std::byte{0xA5}) << "at " << i;
    }
}

TEST(DeviceTransform, MakesTheServersRowsOfRandomChains) {
  ChainMaker maker(17);
  int finished = 0;
  for (int round = 0; round < 2500; ++round) {
    const PlanConfig config = maker.chain();
    const auto batch = make_batch(config, maker, 3, 600, 500);
    ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
    finished += batch->finished;
    ASSERT_NO_FATAL_FAILURE(expect_same(config, *batch, maker.random()() % 16)) << "round " << round;
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_LT(finished, 75);  // of 7500 rows, by the server
}

TEST(DeviceTransform, MakesTheServersRowsOfChainsThatItDoesTheEndOf) {
  ChainMaker maker(23);
  int finished = 0, rows = 0;
  for (int round = 0; round < 1000; ++round) {
    const PlanConfig config = maker.any_chain();
    const auto batch = make_batch(config, maker, 4, 300, 250, false, true);
    if (!batch && batch.error().code == ErrorCode::kBadSample) continue;  // too small for what is cut of it
    if (!batch && batch.error().code == ErrorCode::kConfigInvalid) continue;
    ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
    finished += batch->finished;
    rows += 4;
    ASSERT_NO_FATAL_FAILURE(expect_same(config, *batch, 0)) << "round " << round;
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(rows, 2000);
  EXPECT_GT(finished, rows / 8);
  EXPECT_LT(finished, rows / 2 + rows / 4);
}

TEST(DeviceTransform, MakesTheServersRowsOfImageNetsChain) {
  ChainMaker maker(5);
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32}) {
    PlanConfig config{.transforms = {RandomResizedCrop{.size = {224, 224}}, RandomHorizontalFlip{}}};
    config.output.dtype = dtype;
    if (dtype != DType::kUInt8)
      config.transforms.emplace_back(Normalize{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}});
    const auto batch = make_batch(config, maker, 30, 600, 500);
    ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
    ASSERT_NO_FATAL_FAILURE(expect_same(config, *batch, 0));
  }
}

TEST(DeviceTransform, MakesTheServersRowsWhereTilesAndChunksAreSmall) {
  ChainMaker maker(29);
  const std::vector<std::pair<Size, decode::ImageSize>> sizes{
      {{6, 8}, {2000, 1500}},   {{3, 900}, {1500, 700}},  {{700, 2}, {90, 512}},
      {{40, 3000}, {1000, 60}}, {{300, 5000}, {900, 40}}, {{5, 5}, {1280, 30}},
      {{5, 5}, {30, 1280}},     {{2, 3}, {768, 512}},     {{1, 1}, {256, 256}}};
  for (const auto& [out, in] : sizes)
    for (const Interpolation interpolation :
         {Interpolation::kBilinear, Interpolation::kBicubic, Interpolation::kNearest}) {
      PlanConfig config{.transforms = {Resize{.size = out, .interpolation = interpolation},
                                       RandomVerticalFlip{}, ColorJitter{.contrast = Bounds{0, 3}}}};
      const auto batch = make_batch(config, maker, 2, in.width, in.height, true);
      ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
      ASSERT_NO_FATAL_FAILURE(expect_same(config, *batch, 0)) << out.width << " x " << out.height;
    }
}

}  // namespace
}  // namespace headrace::server::transform::testing
