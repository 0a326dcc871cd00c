// Needs a GPU. A DeviceLoader's own memory is reused after its readers have finished, and not before.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/finished_loader.h"

namespace headrace::gpu {
namespace {

/// A consumer's stream that lags, so that the host is several batches ahead of it.
class LaggingStream {
 public:
  LaggingStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~LaggingStream() { (void)cudaStreamDestroy(stream_); }
  LaggingStream(const LaggingStream&) = delete;
  LaggingStream& operator=(const LaggingStream&) = delete;

  [[nodiscard]] StreamHandle handle() const { return reinterpret_cast<StreamHandle>(stream_); }
  void lag() {
    const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
    ASSERT_EQ(cudaLaunchHostFunc(stream_, sleep, nullptr), cudaSuccess);
  }
  void read(const std::byte* from, std::byte* to, std::size_t bytes) {
    ASSERT_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  }
  void finish() { ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

struct FreePinned {
  void operator()(std::byte* memory) const { (void)cudaFreeHost(memory); }
};

constexpr int kEpochs = 3;

/// Reads batches of `stream` on a CUDA stream that lags, and drops each batch before that stream has read it.
void expect_read_whole(Stream stream, const std::vector<Seen>& expected) {
  void* pinned = nullptr;
  std::size_t most = 0;
  for (const Seen& batch : expected) most = std::max(most, batch.bytes.size());
  ASSERT_EQ(cudaMallocHost(&pinned, expected.size() * most), cudaSuccess);
  const std::unique_ptr<std::byte, FreePinned> results(static_cast<std::byte*>(pinned));
  LaggingStream consumer;
  {
    auto loader = DeviceLoader::open(std::move(stream), {.engine = {.device = "cuda:0"}}).value();
    std::size_t at = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      while (auto batch = loader->next(20s).value()) {
        ASSERT_TRUE(batch->wait_on(consumer.handle()).has_value());
        consumer.lag();
        ASSERT_LT(at, expected.size());
        std::byte* to = results.get() + at++ * most;
        for (std::size_t f = 0; f < batch->fields().size(); ++f) {
          const DeviceFieldView field = batch->field(f);
          consumer.read(field.data, to, field.bytes());
          to += field.bytes();
        }
      }
    }
    ASSERT_EQ(at, expected.size());
    EXPECT_EQ(loader->stats().staged_copies, 0U);
  }
  consumer.finish();
  for (std::size_t b = 0; b < expected.size(); ++b)
    ASSERT_EQ(std::memcmp(results.get() + b * most, expected[b].bytes.data(), expected[b].bytes.size()), 0)
        << "batch " << b;
}

TEST_F(DeviceLoaderTest, BatchesThatAreDroppedEarlyAreReadWholeOnAStreamThatLags) {
  expect_read_whole(open_ahead(), epochs_of(open(), kEpochs));
}

// All batches share the RowFinisher's memory for source images: a batch's images must not be overwritten
// before its kernel has read them.
TEST_F(FinishedLoaderTest, BatchesThatTheKernelComputesAreReadWholeOnAStreamThatLags) {
  expect_read_whole(open("by_device"), epochs_of(open("by_server"), kEpochs));
}

/// Whether a GPU has a primary context in this process. The CUDA runtime has no function for this.
bool has_context(int gpu) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  auto* const state = driver == nullptr ? nullptr : ::dlsym(driver, "cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 1;
  if (state != nullptr) (void)reinterpret_cast<int (*)(int, unsigned*, int*)>(state)(gpu, &flags, &active);
  return active != 0;
}

/// Loads on cuda:1, and returns an exit status: 0 if cuda:0 has no context afterwards.
int loads_on_the_second_gpu_alone() {
  const TempFolder folder;
  const std::string directory = folder.path().string();
  const RunningServer server(directory, kSamples, kRow, "batch_size: 8");
  bool read = true;
  {
    auto stream = Client::connect({.address = directory})
                      .value()
                      .open({.stream = "train", .commits = Commits::kByCaller})
                      .value();
    const auto loader = DeviceLoader::open(std::move(stream), {.engine = {.device = "cuda:1"}}).value();
    while (const auto batch = loader->next(20s).value()) read = read && batch->wait().has_value();
  }
  int current = -1;
  read = read && cudaGetDevice(&current) == cudaSuccess;
  std::fprintf(stderr, "all batches read: %d; current device: %d; contexts on cuda:0 and cuda:1: %d, %d\n",
               read, current, has_context(0), has_context(1));
  return read && current == 0 && !has_context(0) && has_context(1) ? 0 : 1;
}

TEST(CudaLoader, OnTheSecondGpuMakesNoContextOnTheFirst) {
  int gpus = 0;
  ASSERT_EQ(cudaGetDeviceCount(&gpus), cudaSuccess);
  if (gpus < 2) GTEST_SKIP() << "this machine has only one GPU";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process: this one may already have a context
  EXPECT_EXIT(std::exit(loads_on_the_second_gpu_alone()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace::gpu
