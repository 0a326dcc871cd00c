// The workers' counters. There is one block per (worker, stream), written only by that worker and summed at
// scrape time: counting is a plain add to a cache line that no other thread writes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "server/transform/plan.h"

namespace headrace::server::metrics {

/// A number with one writer and any number of readers.
class Count {
 public:
  void add(std::uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

enum class Stage : std::uint8_t { kRead, kDecode, kTransform };
inline constexpr std::size_t kStages = 3;
inline constexpr std::array<const char*, kStages> kStageNames = {"read", "decode", "transform"};

/// Upper bounds in seconds: 16 us to 1 s in powers of four, then infinity.
inline constexpr std::array<double, 9> kStageBounds = {16e-6,     64e-6,     256e-6,   1.024e-3, 4.096e-3,
                                                       16.384e-3, 65.536e-3, 0.262144, 1.048576};
inline constexpr std::size_t kReasons = 10;  ///< transform::BadReason
static_assert(static_cast<std::size_t>(transform::BadReason::kUnreadable) + 1 == kReasons);

struct StageHistogram {
  std::array<Count, kStageBounds.size() + 1> buckets;
  Count total_ns;

  /// `count` observations that took `ns` together, each as long as the others.
  void observe(std::uint64_t ns, std::uint64_t count = 1) {
    if (count == 0) return;
    const auto each = static_cast<double>(ns) / static_cast<double>(count);
    std::size_t bucket = 0;
    while (bucket < kStageBounds.size() && each > kStageBounds[bucket] * 1e9) ++bucket;
    buckets[bucket].add(count);
    total_ns.add(ns);
  }
};

struct alignas(64) StreamCounters {
  Count samples, batches, read_bytes, published_bytes, replaced;
  Count shared;  ///< of the samples: taken from a RowWindow
  Count cached;  ///< of the samples: taken from a decoded cache
  Count pixels;  ///< of decoded images, before all transforms
  std::array<Count, kReasons> errors;
  std::array<StageHistogram, kStages> stages;
  Count busy_ns;
  Count remote;  ///< of the samples: made by another process (exec/remote_batch.h)

  StageHistogram& stage(Stage stage) { return stages[static_cast<std::size_t>(stage)]; }
};

/// A sum over workers: plain numbers.
struct StreamTotals {
  std::uint64_t samples = 0, batches = 0, read_bytes = 0, published_bytes = 0, replaced = 0, shared = 0,
                cached = 0, remote = 0, pixels = 0, busy_ns = 0;
  std::array<std::uint64_t, kReasons> errors{};
  struct Histogram {
    std::array<std::uint64_t, kStageBounds.size() + 1> buckets{};
    std::uint64_t total_ns = 0;
  };
  std::array<Histogram, kStages> stages{};

  void add(const StreamCounters& counters);
  /// Samples that were neither shared nor cached: read, and decoded if they are images, here or on another
  /// node. Workers count concurrently, so shared + cached can exceed samples.
  [[nodiscard]] std::uint64_t decoded() const { return samples - std::min(samples, shared + cached); }
};

}  // namespace headrace::server::metrics
