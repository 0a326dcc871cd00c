// On a machine with a GPU: the kernel of resident sets against its host twin, what it takes for MNIST's and
// CIFAR-10's epochs, and a loader's batches against the ordinary stream's. Under compute-sanitizer:
// HEADRACE_ROUNDS=20 and --gtest_filter='-*Epoch*'.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "clientlib/gpu/resident/kernel.h"
#include "tests/gpu/device_memory.h"
#include "tests/resident_chains.h"
#include "tests/unit/resident_loader.h"

namespace headrace::gpu {
namespace {

using server::transform::testing::ResidentMaker;
using server::transform::testing::ResidentSample;

/// A launch of random batches, by both.
void expect_same_as_twin(ResidentMaker& maker, const ResidentSample& set, int round) {
  const auto layout = or_throw(BatchLayout::plan(set.info.fields, set.info.batch_size));
  GatherPlan plan = or_throw(plan_gather(set.info, layout));
  std::vector<std::byte> here = set.upload(plan);
  const DeviceMemory there(here.size());
  ASSERT_EQ(cudaMemcpy(there.data(), here.data(), here.size(), cudaMemcpyHostToDevice), cudaSuccess);
  plan.job.epoch = maker.random()();
  plan.job.order = draws::epoch_order(plan.job.samples, plan.job.seed, plan.job.epoch);
  plan.job.rows = maker.between(1, static_cast<std::int32_t>(set.info.batch_size));
  plan.job.batches = maker.between(1, 4);
  plan.job.first = maker.random()() % (2 * plan.job.samples);
  plan.job.batch_positions = maker.random()() % 20;
  plan.job.parts = maker.coin() ? gather_parts(plan.job) : maker.between(1, 4);
  const std::size_t bytes = static_cast<std::size_t>(plan.job.batches) * layout.bytes;
  std::vector<std::byte> wanted(bytes, std::byte{0xA5}), made(bytes);
  const DeviceMemory out(bytes);
  ASSERT_EQ(cudaMemset(out.data(), 0xA5, bytes), cudaSuccess);
  plan.place(here.data());
  plan.job.out = reinterpret_cast<std::uint8_t*>(wanted.data());
  or_throw(open_host_gather()->launch(plan.job, 0));
  plan.place(there.data());
  plan.job.out = reinterpret_cast<std::uint8_t*>(out.data());
  const auto done = or_throw(open_cuda_gather(0))->launch(plan.job, 0);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  ASSERT_EQ(cudaMemcpy(made.data(), out.data(), bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  const auto at = std::mismatch(made.begin(), made.end(), wanted.begin()).first - made.begin();
  ASSERT_EQ(static_cast<std::size_t>(at), bytes)
      << "round " << round << ": steps " << plan.job.step_count << ", " << plan.job.out_width << " x "
      << plan.job.out_height << " of " << plan.job.width << " x " << plan.job.height << " x "
      << plan.job.channels << ", stored " << plan.job.stored_bytes << ", made " << plan.job.element_bytes;
}

TEST(CudaResident, MakesTheTwinsRows) {
  const char* const rounds = std::getenv("HEADRACE_ROUNDS");
  ResidentMaker maker(31);
  for (int round = 0; round < (rounds == nullptr ? 1000 : std::atoi(rounds)); ++round)
    ASSERT_NO_FATAL_FAILURE(expect_same_as_twin(maker, maker.set(), round));
}

struct Figure {
  const char* of;
  std::uint64_t samples;
  std::uint32_t rows;
  std::int32_t side, channels;
  DType dtype;
  bool augmented;
};

/// An epoch's launches one behind the other, without a loader around them.
void report(const Figure& figure) {
  StreamInfo info{.name = figure.of, .samples = figure.samples, .batch_size = figure.rows};
  info.fields = {{"image", figure.dtype, FieldKind::kDense, {figure.channels, figure.side, figure.side}},
                 {"label", DType::kInt64, FieldKind::kDense, {}}};
  Residence residence{.upload = "u", .seed = 1, .image = "image"};
  residence.height = residence.width = figure.side;
  residence.channels = figure.channels;
  residence.mean.assign(static_cast<std::size_t>(figure.channels), 0.5);
  residence.std.assign(static_cast<std::size_t>(figure.channels), 0.25);
  if (figure.augmented) {
    ResidentStep crop{
        .height = figure.side, .width = figure.side, .top = -4, .left = -4, .rows = 9, .columns = 9};
    ResidentStep flip{.kind = ResidentStep::Kind::kHorizontalFlip,
                      .stage = 1,
                      .height = figure.side,
                      .width = figure.side,
                      .p = 0.5};
    residence.steps = {crop, flip};
  }
  info.residence = residence;
  const auto layout = or_throw(BatchLayout::plan(info.fields, info.batch_size));
  GatherPlan plan = or_throw(plan_gather(info, layout));
  constexpr std::int32_t kBatches = 8;
  const DeviceMemory set(plan.bytes), out(kBatches * layout.bytes);
  ASSERT_EQ(cudaMemset(set.data(), 7, plan.bytes), cudaSuccess);
  plan.place(set.data());
  plan.job.out = reinterpret_cast<std::uint8_t*>(out.data());
  plan.job.rows = static_cast<std::int32_t>(figure.rows);
  plan.job.parts = gather_parts(plan.job);
  plan.job.batch_positions = figure.rows;
  const auto kernel = or_throw(open_cuda_gather(0));
  cudaStream_t stream = nullptr;
  cudaEvent_t begun = nullptr, ended = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&begun), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&ended), cudaSuccess);
  for (const std::int32_t batches : {1, kBatches}) {
    plan.job.batches = batches;
    const std::uint64_t step = std::uint64_t{figure.rows} * static_cast<std::uint64_t>(batches);
    float best = 1e9F;
    std::uint64_t rows = 0;
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      plan.job.order = draws::epoch_order(plan.job.samples, 1, plan.job.epoch = epoch);
      rows = 0;
      ASSERT_EQ(cudaEventRecord(begun, stream), cudaSuccess);
      for (plan.job.first = 0; plan.job.first + step <= figure.samples; plan.job.first += step, rows += step)
        or_throw(kernel->launch(plan.job, reinterpret_cast<StreamHandle>(stream)));
      ASSERT_EQ(cudaEventRecord(ended, stream), cudaSuccess);
      ASSERT_EQ(cudaEventSynchronize(ended), cudaSuccess);
      float ms = 0;
      ASSERT_EQ(cudaEventElapsedTime(&ms, begun, ended), cudaSuccess);
      best = std::min(best, ms);
    }
    const double bytes = static_cast<double>(rows) * (static_cast<double>(row_bytes(info.fields[0])) +
                                                      static_cast<double>(row_bytes(plan.fields[0].spec)));
    std::printf(
        "[figure] {\"figure\": \"resident kernel\", \"of\": \"%s\", \"batches a launch\": %d, \"epoch_ms\": "
        "%.3f, \"us a batch\": %.2f, \"gb_per_s\": %.0f}\n",
        figure.of, batches, best, 1000.0 * best * figure.rows / static_cast<double>(rows),
        bytes / best / 1e6);
  }
  (void)cudaEventDestroy(begun);
  (void)cudaEventDestroy(ended);
  (void)cudaStreamDestroy(stream);
}

TEST(CudaResident, EpochsOfMnistAndCifar) {
  report({"MNIST, float32", 60'000, 300, 28, 1, DType::kFloat32, false});
  report({"CIFAR-10, crop, flip, float16", 50'000, 500, 32, 3, DType::kFloat16, true});
  report({"CIFAR-10, crop, flip, float32", 50'000, 500, 32, 3, DType::kFloat32, true});
  report({"100,000 of 64 x 64, crop, flip, bfloat16", 100'000, 512, 64, 3, DType::kBFloat16, true});
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

TEST_F(ResidentLoaderTest, RefusesASetThatTheGpuHasNoRoomFor) {
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
