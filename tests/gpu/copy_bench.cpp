// Measures copies of batches to a GPU: time and GB/s of CopyEngine from a pinned ring, beside plain
// cudaMemcpyAsync calls from pinned (cudaMallocHost) and pageable memory. They run alternately.
//
// Prints one line of JSON per figure, after "[figure] ".
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "headrace/gpu.h"

namespace {

using headrace::or_throw;
using headrace::gpu::Completion;
using headrace::gpu::CopyEngine;
using headrace::gpu::DeviceBlock;
using headrace::gpu::Transfer;

constexpr std::size_t kSlots = 8;
constexpr int kTurns = 7;

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "copy_bench: %s failed: %s\n", doing, cudaGetErrorString(error));
  std::exit(1);
}

/// Memory like a ring's data segment: a shared mapping of a memfd, written once.
std::span<std::byte> ring_of(std::size_t bytes) {
  const int fd = ::memfd_create("ring", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::abort();
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) std::abort();
  std::memset(memory, 0x5A, bytes);
  return {static_cast<std::byte*>(memory), bytes};
}

double seconds_of(const std::function<void()>& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + kTurns / 2);
  return values[kTurns / 2];
}

void figure(const nlohmann::json& line) {
  std::printf("[figure] %s\n", line.dump().c_str());
}

/// Copies the ring's slots one after the other, two at a time.
class Copies {
 public:
  Copies(std::size_t batch, std::size_t pieces)
      : batch_(batch), pieces_(pieces), ring_(ring_of(batch * kSlots)) {
    engine_->register_mapping(ring_, std::make_shared<int>());
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaMallocHost(&pinned_, batch * 2), "cudaMallocHost");
    std::memset(pinned_, 0x5A, batch * 2);
    pageable_.resize(batch * 2, std::byte{0x5A});
    // Without BlockingSync, whose time to wake the thread would dominate for small batches.
    for (auto& event : events_)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    for (int i = 0; i < 2; ++i) {
      auto buffer = std::make_shared<headrace::gpu::DeviceBuffer>(or_throw(engine_->allocate(batch)));
      blocks_.push_back({buffer->data(), batch, buffer});
    }
  }
  ~Copies() {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    for (auto& event : events_) (void)cudaEventDestroy(event);
    (void)cudaStreamDestroy(stream_);
    (void)cudaFreeHost(pinned_);
    blocks_.clear();
    engine_.reset();
    ::munmap(ring_.data(), ring_.size());
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  /// The upper limit: only cudaMemcpyAsync.
  void bare_pinned(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      if (i >= 2) check(cudaEventSynchronize(events_[i % 2]), "cudaEventSynchronize");
      start(static_cast<std::byte*>(pinned_), i);
      check(cudaEventRecord(events_[i % 2], stream_), "cudaEventRecord");
    }
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  /// Waits for each copy, as `.to()` of a plain tensor in torch does.
  void bare_pageable(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      start(pageable_.data(), i);
      check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }
  }

  void direct(int rounds) {
    two_under_way(rounds, [&](int i, const std::vector<Transfer>& transfers) {
      return or_throw(engine_->copy_into(blocks_[i % 2], transfers, nullptr));
    });
  }

 private:
  void start(const std::byte* source, int i) {
    check(cudaMemcpyAsync(blocks_[i % 2].data, source + static_cast<std::size_t>(i % 2) * batch_, batch_,
                          cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
  }
  template <class F>
  void two_under_way(int rounds, F copy) {
    std::vector<Completion> copies;
    for (int i = 0; i < rounds; ++i) {
      if (i >= 2) or_throw(copies[static_cast<std::size_t>(i) - 2].wait());
      std::vector<Transfer> transfers;
      const std::byte* slot = ring_.data() + static_cast<std::size_t>(i) % kSlots * batch_;
      for (std::size_t p = 0; p < pieces_; ++p) {
        const std::size_t from = batch_ * p / pieces_, to = batch_ * (p + 1) / pieces_;
        transfers.push_back({slot + from, blocks_[i % 2].data + from, to - from});
      }
      copies.push_back(copy(i, transfers));
    }
    for (const Completion& each : copies) or_throw(each.wait());
  }

  const std::size_t batch_, pieces_;
  std::unique_ptr<CopyEngine> engine_ = or_throw(CopyEngine::open({.device = "cuda:0"}));
  std::span<std::byte> ring_;
  std::vector<std::byte> pageable_;
  void* pinned_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[2] = {};
  std::vector<DeviceBlock> blocks_;
};

void measure(std::size_t bytes) {
  constexpr std::size_t kEach = std::size_t{1} << 30;  // bytes per measurement, at most
  const int rounds = static_cast<int>(std::clamp<std::size_t>(kEach / bytes, 20, 2000));
  Copies copies(bytes, 2);
  copies.bare_pinned(4);
  copies.direct(4);
  std::vector<double> pinned, pageable, ours;
  for (int turn = 0; turn < kTurns; ++turn) {
    pinned.push_back(seconds_of([&] { copies.bare_pinned(rounds); }) / rounds);
    ours.push_back(seconds_of([&] { copies.direct(rounds); }) / rounds);
    pageable.push_back(seconds_of([&] { copies.bare_pageable(rounds); }) / rounds);
  }
  const auto kb = static_cast<double>(bytes) / 1024;
  figure({{"figure", "host to device"},
          {"batch_kb", kb},
          {"us", 1e6 * median(ours)},
          {"gb_per_s", static_cast<double>(bytes) / median(ours) / 1e9},
          {"pinned_us", 1e6 * median(pinned)},
          {"pageable_us", 1e6 * median(pageable)},
          {"share_of_pinned", median(pinned) / median(ours)},
          {"over_pageable", median(ours) / median(pageable)}});
}

}  // namespace

int main() {
  // Write each line at once: a program that is killed loses the lines in its buffer.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  constexpr std::size_t kKb = 1024, kMb = 1024 * kKb;
  for (const std::size_t bytes : {24 * kKb, 150 * kKb, 4 * kMb, 16 * kMb, 38 * kMb, 128 * kMb})
    measure(bytes);
}
