// On a machine with a GPU: a DeviceLoader's own memory is used again behind its readers, and not before.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/device_loader.h"

namespace headrace::gpu {
namespace {

/// A consumer's stream that lags: the host is batches ahead of what runs on it.
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

TEST_F(DeviceLoaderTest, BatchesThatAreDroppedEarlyAreReadWholeOnAStreamThatLags) {
  std::vector<Seen> expected;
  Stream stream = open();
  for (int epoch = 0; epoch < 3; ++epoch)
    while (const auto batch = stream.next(20s).value()) expected.push_back(seen(*batch));
  void* pinned = nullptr;
  constexpr std::size_t kMost = 8 * (kRow + 64);
  ASSERT_EQ(cudaMallocHost(&pinned, expected.size() * kMost), cudaSuccess);
  const std::unique_ptr<std::byte, FreePinned> results(static_cast<std::byte*>(pinned));
  LaggingStream consumer;
  {
    auto loader = DeviceLoader::open(open_ahead(), {.engine = {.device = "cuda:0"}}).value();
    std::size_t at = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      while (auto batch = loader->next(20s).value()) {
        ASSERT_TRUE(batch->wait_on(consumer.handle()).has_value());
        consumer.lag();
        std::byte* to = results.get() + at++ * kMost;
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
    ASSERT_EQ(std::memcmp(results.get() + b * kMost, expected[b].bytes.data(), expected[b].bytes.size()), 0)
        << "batch " << b;
}

}  // namespace
}  // namespace headrace::gpu
