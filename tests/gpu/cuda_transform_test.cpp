// On a machine with a GPU: the transform kernel against its host twin, and what share of the memory's
// bandwidth it takes. Under compute-sanitizer: HEADRACE_ROUNDS=20 compute-sanitizer --tool memcheck
// (racecheck, initcheck).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "headrace/gpu_transform.h"
#include "tests/gpu/device_memory.h"
#include "tests/random_steps.h"

namespace headrace::gpu {
namespace {

using testing::StepBatch;
using testing::StepMaker;

std::vector<std::byte> by_twin(const StepBatch& batch) {
  auto twin = or_throw(DeviceTransform::open("host", batch.output));
  std::vector<std::byte> out(batch.steps.size() * batch.output.row_bytes());
  const auto done = twin.launch(batch.view(batch.pixels.data()), batch.steps, out.data(), out.size(), 0);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  return out;
}

void expect_same_as_twin(const StepBatch& batch, int round) {
  auto transform = or_throw(DeviceTransform::open("cuda:0", batch.output));
  const std::size_t bytes = batch.steps.size() * batch.output.row_bytes();
  const DeviceMemory in(batch.pixels.size()), out(bytes);
  ASSERT_EQ(cudaMemcpy(in.data(), batch.pixels.data(), batch.pixels.size(), cudaMemcpyHostToDevice),
            cudaSuccess);
  ASSERT_EQ(cudaMemset(out.data(), 0xA5, bytes), cudaSuccess);
  const auto done = transform.launch(batch.view(in.data()), batch.steps, out.data(), bytes, 0);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  std::vector<std::byte> made(bytes);
  ASSERT_EQ(cudaMemcpy(made.data(), out.data(), bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  const auto want = by_twin(batch);
  const auto at =
      static_cast<std::size_t>(std::mismatch(made.begin(), made.end(), want.begin()).first - made.begin());
  if (at == bytes) return;
  const auto& steps = batch.steps[at / batch.output.row_bytes()];
  FAIL() << "round " << round << ", row " << at / batch.output.row_bytes() << ", byte "
         << at % batch.output.row_bytes() << ": flags " << int{steps.flags} << ", interpolation "
         << static_cast<int>(steps.interpolation) << ", crop " << steps.crop.width << " x "
         << steps.crop.height << ", resized " << steps.resized_width << " x " << steps.resized_height
         << ", ops " << int{steps.op_count};
}

TransformOutput random_output(StepMaker& maker) {
  constexpr DType kTypes[] = {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32};
  TransformOutput output{.height = maker.between(1, 260), .width = maker.between(1, 260)};
  output.channels = maker.between(0, 3) == 0 ? 1 : 3;
  output.dtype = kTypes[maker.between(0, 3)];
  output.layout = maker.coin() ? pixels::PixelLayout::kNchw : pixels::PixelLayout::kNhwc;
  if (output.dtype == DType::kUInt8) return output;
  output.mean.assign(static_cast<std::size_t>(output.channels), 0.45);
  output.std.assign(static_cast<std::size_t>(output.channels), 0.225);
  return output;
}

TEST(CudaTransform, MakesTheTwinsRows) {
  const char* const rounds = std::getenv("HEADRACE_ROUNDS");
  StepMaker maker(11);
  for (int round = 0; round < (rounds == nullptr ? 500 : std::atoi(rounds)); ++round) {
    const auto output = random_output(maker);
    const auto batch = testing::random_batch(maker, output, 5, 600, 500, maker.coin());
    ASSERT_NO_FATAL_FAILURE(expect_same_as_twin(batch, round));
  }
}

TEST(CudaTransform, NeitherReportsNorTakesAnErrorThatTheTrainerLeftBehind) {
  StepMaker maker(1);
  const TransformOutput output{.height = 8, .width = 8};
  const auto batch = testing::random_batch(maker, output, 2, 60, 50, false);
  auto transform = or_throw(DeviceTransform::open("cuda:0", output));
  const DeviceMemory in(batch.pixels.size()), out(2 * output.row_bytes());
  EXPECT_EQ(cudaSetDevice(77), cudaErrorInvalidDevice);
  const auto done =
      transform.launch(batch.view(in.data()), batch.steps, out.data(), 2 * output.row_bytes(), 0);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

/// 256 pictures of about 350 x 300; RandomResizedCrop's area, flips, and perhaps colour jitter.
StepBatch imagenet_like(StepMaker& maker, DType dtype, double least_area, bool jitter) {
  TransformOutput output{.height = 224, .width = 224, .dtype = dtype};
  output.mean = {0.485, 0.456, 0.406};
  output.std = {0.229, 0.224, 0.225};
  StepBatch batch{.output = output};
  for (int row = 0; row < 256; ++row) {
    const std::int32_t width = maker.between(320, 380), height = maker.between(270, 330);
    pixels::RowSteps steps;
    const double side = least_area + (1 - least_area) * maker.between(0, 1000) / 1000.0;
    steps.flags = static_cast<std::uint8_t>(pixels::RowSteps::kResized |
                                            (maker.coin() ? pixels::RowSteps::kMirrored : 0));
    steps.crop.width = static_cast<std::int32_t>(width * side);
    steps.crop.height = static_cast<std::int32_t>(height * side);
    steps.crop.left = maker.between(0, width - steps.crop.width);
    steps.crop.top = maker.between(0, height - steps.crop.height);
    steps.resized_width = steps.resized_height = 224;
    steps.window = {0, 0, 224, 224};
    using Kind = pixels::PixelStepKind;
    if (jitter)
      for (const Kind kind : {Kind::kBrightness, Kind::kContrast, Kind::kSaturation, Kind::kHue})
        steps.ops[steps.op_count++] = {.kind = kind, .shift = 20, .factor = 1.2F};
    batch.steps.push_back(steps);
    batch.pictures.push_back({batch.pixels.size(), height, width});
    batch.pixels.resize(batch.pixels.size() +
                        (static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3 + 255) / 256 *
                            256);
  }
  for (auto& value : batch.pixels) value = static_cast<std::byte>(maker.bits());
  return batch;
}

/// Bytes that must cross the memory's pins: of each crop, and of the rows.
double least_bytes(const StepBatch& batch) {
  double bytes = static_cast<double>(batch.steps.size() * batch.output.row_bytes());
  for (const auto& steps : batch.steps) bytes += 3.0 * steps.crop.width * steps.crop.height;
  return bytes;
}

void report(const StepBatch& batch, const char* what) {
  constexpr int kRounds = 50;
  auto transform = or_throw(DeviceTransform::open("cuda:0", batch.output));
  const std::size_t bytes = batch.steps.size() * batch.output.row_bytes();
  const DeviceMemory in(batch.pixels.size()), out(bytes);
  ASSERT_EQ(cudaMemcpy(in.data(), batch.pixels.data(), batch.pixels.size(), cudaMemcpyHostToDevice),
            cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaEvent_t begin = nullptr, end = nullptr;
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  float best = 1e9F;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_EQ(cudaEventRecord(begin, stream), cudaSuccess);
    ASSERT_TRUE(transform
                    .launch(batch.view(in.data()), batch.steps, out.data(), bytes,
                            reinterpret_cast<StreamHandle>(stream))
                    .has_value());
    ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
    float ms = 0;
    ASSERT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
    best = std::min(best, ms);
  }
  // What the memory does at its best: a copy of as many bytes, which reads and writes each of them.
  float copy = 1e9F;
  const auto half = static_cast<std::size_t>(least_bytes(batch) / 2);
  const DeviceMemory from(half), to(half);
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_EQ(cudaEventRecord(begin, stream), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(to.data(), from.data(), half, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
    float ms = 0;
    ASSERT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
    copy = std::min(copy, ms);
  }
  std::printf(
      "[figure] %s: %.0f us a batch of 256 (with the upload of its steps), %.0f GB/s; a copy of as many "
      "bytes: %.0f us, so %.0f%% of its speed\n",
      what, 1e3 * static_cast<double>(best), least_bytes(batch) / static_cast<double>(best) / 1e6,
      1e3 * static_cast<double>(copy), 100 * static_cast<double>(copy / best));
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  (void)cudaStreamDestroy(stream);
}

TEST(CudaTransform, TellsItsShareOfTheMemorysBandwidth) {
  StepMaker maker(2);
  report(imagenet_like(maker, DType::kFloat16, 1, false), "whole pictures to 224, float16");
  report(imagenet_like(maker, DType::kFloat32, 1, false), "whole pictures to 224, float32");
  report(imagenet_like(maker, DType::kFloat16, 0.3, false), "crops to 224, float16");
  report(imagenet_like(maker, DType::kFloat32, 0.3, false), "crops to 224, float32");
  report(imagenet_like(maker, DType::kFloat16, 0.3, true), "crops to 224 and colour jitter, float16");
}

}  // namespace
}  // namespace headrace::gpu
