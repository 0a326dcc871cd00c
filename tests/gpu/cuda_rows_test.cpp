// Needs a GPU. Compares the kernel with the CPU backend, and a loader's batches with those of the same stream
// without a device. Under compute-sanitizer set HEADRACE_ROUNDS=20.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "clientlib/gpu/device/device.h"
#include "clientlib/gpu/host/host_rows.h"
#include "clientlib/gpu/rows/plan.h"
#include "server/transform/ops/ops.h"
#include "tests/gpu/device_memory.h"
#include "tests/resident_chains.h"
#include "tests/unit/resident_loader.h"

namespace headrace::gpu {
namespace {

using server::transform::testing::ChainMaker;
using server::transform::testing::ResidentMaker;
using server::transform::testing::ResidentSample;

int rounds(int usual) {
  const char* const asked = std::getenv("HEADRACE_ROUNDS");
  return asked == nullptr ? usual : std::atoi(asked);
}

std::unique_ptr<Device> first_gpu() {
  auto device = or_throw(open_device("cuda:0"));
  or_throw(device->prepare_rows());
  return device;
}

/// Runs the job on the GPU and returns the `bytes` bytes that it writes.
std::vector<std::byte> made_by_gpu(Device& device, RowJob job, std::size_t bytes) {
  const DeviceMemory out(bytes);
  EXPECT_EQ(cudaMemset(out.data(), 0xA5, bytes), cudaSuccess);
  job.out = reinterpret_cast<std::uint8_t*>(out.data());
  const auto done = device.launch(job);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  device.synchronize();
  std::vector<std::byte> made(bytes);
  EXPECT_EQ(cudaMemcpy(made.data(), out.data(), bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  return made;
}

std::vector<std::byte> made_by_cpu(RowJob job, std::size_t bytes) {
  std::vector<std::byte> made(bytes, std::byte{0xA5});
  job.out = reinterpret_cast<std::uint8_t*>(made.data());
  run_on_host(job);
  return made;
}

std::ptrdiff_t first_difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (a == b) return -1;
  return std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
}

/// Computes the job's rows on both. Returns the first byte that differs, or -1. Uploads first: a job adds the
/// sums of grays to its images.
std::ptrdiff_t difference_on_gpu(Device& device, RowJob job, const std::vector<std::byte>& pictures,
                                 std::size_t bytes) {
  const DeviceMemory there(pictures.size());
  EXPECT_EQ(cudaMemcpy(there.data(), pictures.data(), pictures.size(), cudaMemcpyHostToDevice), cudaSuccess);
  const auto expected = made_by_cpu(job, bytes);
  job.pictures = reinterpret_cast<std::uint8_t*>(there.data());
  return first_difference(made_by_gpu(device, job, bytes), expected);
}

TEST(CudaRows, OfRandomChainsAreTheCpuBackends) {
  const auto device = first_gpu();
  ChainMaker maker(11);
  for (int round = 0; round < rounds(500); ++round) {
    const auto batch = make_batch(maker.chain(), maker, 5, 400, 300);
    if (!batch) continue;
    const RowJob& job = batch->job;
    ASSERT_EQ(difference_on_gpu(*device, job, batch->pictures, batch->expected.size()), -1)
        << "round " << round << ": " << job.out_width << " x " << job.out_height << ", geometric transforms "
        << job.move_count << ", contrast changes " << job.contrasts << ", elements of " << job.element_bytes;
  }
}

TEST(CudaRows, OfEveryColorAreTheCpuBackends) {
  if (rounds(500) < 500) GTEST_SKIP() << "too long under compute-sanitizer";
  constexpr std::int32_t kSide = 4096;  // a pixel for each of 2^24 colors
  const auto device = first_gpu();
  const DeviceImage image{.height = kSide, .width = kSide, .channels = 3, .color_steps = 1, .contrasts = 1};
  std::vector<std::byte> here(image.row_bytes());
  for (std::size_t i = 0; i < image.picture_bytes(); ++i)
    here[i] = static_cast<std::byte>(i / 3 >> (8 * (i % 3)));
  using Kind = PixelStep::Kind;
  for (const PixelStep& step :
       {PixelStep{.kind = Kind::kHue, .shift = 0}, PixelStep{.kind = Kind::kHue, .shift = 77},
        PixelStep{.kind = Kind::kHue, .shift = 255}, PixelStep{.kind = Kind::kBrightness, .factor = 0.637F},
        PixelStep{.kind = Kind::kContrast, .factor = 1.4F},
        PixelStep{.kind = Kind::kSaturation, .factor = 0.637F},
        PixelStep{.kind = Kind::kSaturation, .factor = 1e6F}}) {
    RowSteps steps;
    steps.steps[steps.step_count++] = step;
    std::memcpy(here.data() + image.steps_offset(), &steps, sizeof steps);
    RowJob job;
    ASSERT_EQ(plan_rows(image, {"image", DType::kUInt8, FieldKind::kDense, {3, kSide, kSide}},
                        Drawn::kByServer, job),
              "");
    job.rows = 1;
    job.parts = 64;
    job.pictures = reinterpret_cast<std::uint8_t*>(here.data());
    ASSERT_EQ(difference_on_gpu(*device, job, here, image.picture_bytes()), -1)
        << "step " << static_cast<int>(step.kind) << ", shift " << int{step.shift} << ", factor "
        << step.factor;
  }
}

TEST(CudaRows, OfAnyBytesAsRowStepsAreTheCpuBackends) {
  const auto device = first_gpu();
  ChainMaker maker(7);
  for (int round = 0; round < rounds(500); ++round) {
    auto batch = make_batch(maker.chain(), maker, 2, 60, 50);
    if (!batch) continue;
    for (std::size_t row = 0; row < 2; ++row)
      for (std::size_t i = 0; i < sizeof(RowSteps); ++i)
        batch->pictures[row * batch->job.picture_step + batch->job.steps_offset + i] =
            static_cast<std::byte>(maker.coin() ? maker.random()() : 0xFF);
    ASSERT_EQ(difference_on_gpu(*device, batch->job, batch->pictures, batch->expected.size()), -1)
        << "round " << round;
  }
}

TEST(CudaRows, OfDatasetsInGpuMemoryAreTheCpuBackends) {
  const auto device = first_gpu();
  ResidentMaker maker(31);
  for (int round = 0; round < rounds(500); ++round) {
    const ResidentSample set = maker.set();
    const auto layout = or_throw(BatchLayout::plan(set.info.fields, set.info.batch_size));
    SetPlan plan = or_throw(plan_set(set.info, layout));
    std::vector<std::byte> here = set.upload(plan);
    const DeviceMemory there(here.size());
    ASSERT_EQ(cudaMemcpy(there.data(), here.data(), here.size(), cudaMemcpyHostToDevice), cudaSuccess);
    const std::int32_t batches = maker.draw_launch(set, layout, plan.job);
    const std::size_t bytes = static_cast<std::size_t>(batches) * layout.bytes;
    plan.place(here.data());
    const auto expected = made_by_cpu(plan.job, bytes);
    plan.place(there.data());
    ASSERT_EQ(first_difference(made_by_gpu(*device, plan.job, bytes), expected), -1)
        << "round " << round << ": geometric transforms " << plan.job.move_count << ", " << plan.job.out_width
        << " x " << plan.job.out_height << " of " << plan.job.width << " x " << plan.job.height;
  }
}

TEST(CudaRows, NeitherReportNorTakeAnErrorThatTheTrainerLeftBehind) {
  const auto device = first_gpu();
  ChainMaker maker(1);
  auto batch = make_batch({.transforms = {server::transform::make_op("center_crop", {{"size", {8, 8}}})}},
                          maker, 2, 60, 50);
  ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
  const DeviceMemory pictures(batch->pictures.size()), out(batch->expected.size());
  batch->job.pictures = reinterpret_cast<std::uint8_t*>(pictures.data());
  batch->job.out = reinterpret_cast<std::uint8_t*>(out.data());
  void* none = nullptr;
  ASSERT_NE(cudaMalloc(&none, SIZE_MAX / 2), cudaSuccess);
  const auto done = device->launch(batch->job);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  device->synchronize();
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST_F(ResidentLoaderTest, GivesTheServersBatchesOnAGpu) {
  serve();
  Stream stream = open();
  DeviceLoaderOptions options;
  options.engine.device = "cuda:0";
  const auto loader = or_throw(DeviceLoader::open(open({.commits = Commits::kByCaller}), options));
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto sent = rest_of(stream);
    for (const Seen& wanted : sent) {
      const DeviceBatch batch = next(*loader);
      ASSERT_TRUE(batch.wait().has_value());
      std::vector<std::byte> bytes;
      for (std::size_t f = 0; f < batch.fields().size(); ++f) {
        const DeviceFieldView field = batch.field(f);
        bytes.resize(bytes.size() + field.bytes());
        ASSERT_EQ(cudaMemcpy(bytes.data() + bytes.size() - field.bytes(), field.data, field.bytes(),
                             cudaMemcpyDeviceToHost),
                  cudaSuccess);
      }
      ASSERT_EQ(bytes, wanted.bytes) << "epoch " << epoch << ", batch " << wanted.batch;
      ASSERT_EQ(batch.rows().front().sample_index, wanted.samples.front());
    }
    EXPECT_FALSE(loader->next(20s).value());
  }
}

TEST_F(ResidentLoaderTest, RefusesADatasetThatDoesNotFitTheGpu) {
  std::size_t room = 0, all = 0;
  ASSERT_EQ(cudaMemGetInfo(&room, &all), cudaSuccess);
  const DeviceMemory taken(room > (std::size_t{300} << 20) ? room - (std::size_t{256} << 20) : 0);
  server_.emplace(directory_, 3000, std::size_t{1} << 18, "batch_size: 8, residence: gpu");  // 786 MB
  DeviceLoaderOptions options;
  options.engine.device = "cuda:0";
  const auto refused = DeviceLoader::open(open({.commits = Commits::kByCaller}), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotEnoughMemory);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace headrace::gpu
