// Needs a GPU. Tests the copy engine with CUDA over a memfd, as the ring is one: unsealed, and sealed as in
// the server's read-only mode.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "headrace/gpu.h"

namespace headrace::gpu {
namespace {

constexpr std::size_t kBatch = std::size_t{64} * 3 * 224 * 224 * sizeof(float);  // 38.5 MB
constexpr std::size_t kSlots = 8;

/// An owner for the memory of a mapping.
std::shared_ptr<const void> held() {
  static const auto kOwner = std::make_shared<int>();
  return kOwner;
}

enum class Sealed { kNo, kAgainstWriting };

class Ring {
 public:
  explicit Ring(int protection, Sealed sealed = Sealed::kNo) {
    const int fd = ::memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(kBatch * kSlots)), 0);
    auto* writer =
        static_cast<std::byte*>(::mmap(nullptr, kBatch * kSlots, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    for (std::size_t i = 0; i < kBatch * kSlots; i += 8) {
      const std::uint64_t word = i * 0x9E3779B97F4A7C15U;
      std::memcpy(writer + i, &word, sizeof word);
    }
    ::munmap(writer, kBatch * kSlots);
    if (sealed == Sealed::kAgainstWriting) {
      EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE), 0);
    }
    memory_ = {static_cast<std::byte*>(::mmap(nullptr, kBatch * kSlots, protection, MAP_SHARED, fd, 0)),
               kBatch * kSlots};
    ::close(fd);
  }
  ~Ring() { ::munmap(memory_.data(), memory_.size()); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
  [[nodiscard]] const std::byte* slot(std::size_t i) const { return memory_.data() + i % kSlots * kBatch; }

 private:
  std::span<std::byte> memory_;
};

void expect_copies_are_exact(CopyEngine& engine, const Ring& ring) {
  const auto buffer = engine.allocate(kBatch).value();
  std::vector<std::byte> back(kBatch);
  for (std::size_t i = 0; i < kSlots; ++i) {
    std::atomic<bool> ended = false;
    const Transfer transfer{ring.slot(i), buffer.data(), kBatch};
    const auto copy =
        engine.copy({&transfer, 1}, {&ended, [](std::atomic<bool>* flag) { flag->store(true); }});
    ASSERT_TRUE(copy.has_value()) << copy.error().to_string();
    ASSERT_TRUE(copy->wait().has_value());
    EXPECT_TRUE(ended);
    ASSERT_EQ(cudaMemcpy(back.data(), buffer.data(), kBatch, cudaMemcpyDeviceToHost), cudaSuccess);
    ASSERT_EQ(std::memcmp(back.data(), ring.slot(i), kBatch), 0) << "slot " << i;
  }
}

/// GB/s of `rounds` batches, two at a time.
double rate(CopyEngine& engine, const Ring& ring, std::size_t rounds) {
  std::vector<DeviceBuffer> buffers;
  for (int i = 0; i < 2; ++i) buffers.push_back(engine.allocate(kBatch).value());
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Completion> copies;
  for (std::size_t i = 0; i < rounds; ++i) {
    if (i >= 2) {
      EXPECT_TRUE(copies[i - 2].wait().has_value());
    }
    const Transfer transfer{ring.slot(i), buffers[i % 2].data(), kBatch};
    copies.push_back(engine.copy({&transfer, 1}, nullptr).value());
  }
  for (const auto& copy : copies) EXPECT_TRUE(copy.wait().has_value());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(rounds * kBatch) / seconds.count() / 1e9;
}

void figure(const char* ring, double gb_per_s) {
  std::printf("[figure] {\"figure\": \"copy engine\", \"ring\": \"%s\", \"gb_per_s\": %.2f}\n", ring,
              gb_per_s);
}

TEST(CudaCopy, CopiesAPinnedRingExactlyAndDirectly) {
  const Ring ring(PROT_READ | PROT_WRITE);
  auto engine = CopyEngine::open({.device = "cuda:0", .pin_chunk = 3 * kBatch / 2 / 4096 * 4096}).value();
  engine->register_mapping(ring.memory(), held());
  EXPECT_EQ(engine->stats().pinned_bytes, ring.memory().size());
  expect_copies_are_exact(*engine, ring);
  EXPECT_EQ(engine->stats().staged_copies, 0U);
  figure("pinned", rate(*engine, ring, 200));
}

TEST(CudaCopy, PinsARingThatIsMappedForReadingAlone) {
  const Ring ring(PROT_READ);
  auto engine = CopyEngine::open({.device = "cuda:0"}).value();
  engine->register_mapping(ring.memory(), held());
  expect_copies_are_exact(*engine, ring);
  EXPECT_EQ(engine->stats().staged_copies, 0U);
}

/// Sealed memory can never be mapped for writing: it is pinned as read-only, or copies are staged.
TEST(CudaCopy, CopiesASealedRingExactlyPinnedWhereTheDeviceCanAndElseStaged) {
  int supported = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterReadOnlySupported, 0), cudaSuccess);
  const Ring ring(PROT_READ, Sealed::kAgainstWriting);
  auto engine = CopyEngine::open({.device = "cuda:0", .warn = [](std::string_view) {}}).value();
  engine->register_mapping(ring.memory(), held());
  expect_copies_are_exact(*engine, ring);
  const bool staged = engine->stats().staged_copies > 0;
  EXPECT_EQ(staged, supported == 0);
  figure(staged ? "sealed, staged" : "sealed, pinned as read-only", rate(*engine, ring, 200));
}

TEST(CudaCopy, StagesExactlyWhenNothingIsPinned) {
  const Ring ring(PROT_READ);
  auto engine = CopyEngine::open({.device = "cuda:0"}).value();
  expect_copies_are_exact(*engine, ring);
  EXPECT_EQ(engine->stats().staged_copies, kSlots);
  figure("staged", rate(*engine, ring, 50));
}

TEST(CudaCopy, LeavesNoStickyErrorAfterARefusedPin) {
  auto engine = CopyEngine::open({.device = "cuda:0", .warn = [](std::string_view) {}}).value();
  // No memory is mapped there: registering it must fail.
  engine->register_mapping({reinterpret_cast<std::byte*>(std::uintptr_t{4096} * 1000), 1 << 20}, held());
  EXPECT_EQ(engine->stats().pinned_bytes, 0U);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaCopy, NamesADeviceThatIsNotThere) {
  const auto engine = CopyEngine::open({.device = "cuda:99"});
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code, ErrorCode::kEnvironment);
}

}  // namespace
}  // namespace headrace::gpu
