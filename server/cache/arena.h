// Memory that is filled once and never freed: the shared budget of a cache, and its counters.
//
// Admit until full, never evict: epochs are reshuffled, so a sample is needed again only after all the
// others. An evicting cache drops what comes next: at half capacity LRU hits 15%, this 50% (design, Speed).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/error.h"

namespace headrace::server::cache {

/// Thread safety: any thread may call any member; `allocate` uses no lock.
class Arena {
 public:
  static constexpr std::uint64_t kAlignment = 64;
  /// The bytes that an allocation of `size` bytes uses.
  static constexpr std::uint64_t rounded(std::uint64_t size) {
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// `name`: for messages, such as "source `photos`, cache.decoded". Reserves address space only: pages are
  /// allocated when they are first written. kNotEnoughMemory: the reservation failed.
  static Result<std::shared_ptr<Arena>> create(std::string name, std::uint64_t budget);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Memory that lives as long as the arena, aligned to kAlignment; null if less than `size` is left.
  std::byte* allocate(std::uint64_t size);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t budget() const { return budget_; }
  [[nodiscard]] std::uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t left() const { return budget_ - used(); }

  void count_lookup(bool hit) {
    Stripe& own = stripe();
    (hit ? own.hits : own.misses).fetch_add(1, std::memory_order_relaxed);
  }
  /// A sample counts again for a stream if none of the stream's fields was kept before.
  void count_sample() { samples_.fetch_add(1, std::memory_order_relaxed); }
  /// Counts a sample that is never kept. If all of the first ones are refused, it logs a warning.
  void count_refusal();

  struct Counts {
    std::uint64_t hits = 0;     ///< samples served from the cache
    std::uint64_t misses = 0;   ///< samples that had to be made
    std::uint64_t samples = 0;  ///< samples kept
  };
  [[nodiscard]] Counts counts() const;

 private:
  Arena(std::string name, std::uint64_t budget, std::byte* begin)
      : name_(std::move(name)), budget_(budget), begin_(begin) {}

  /// One cache line per worker: a shared one would move between cores with every sample.
  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> hits{0}, misses{0};
  };
  Stripe& stripe();

  const std::string name_;
  const std::uint64_t budget_;
  std::byte* const begin_;
  alignas(64) std::atomic<std::uint64_t> used_{0}, samples_{0}, refused_{0};
  std::array<Stripe, 16> stripes_;
};

}  // namespace headrace::server::cache
