// Memory that is filled once and never given back: what a cache may take together, and what it counts.
//
// Admit until full, never evict: epochs are reshuffled, so a sample is wanted again after all the others
// were. Whoever evicts throws away what comes next; at half capacity LRU hits 15%, this 50% (design, Speed).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/error.h"

namespace headrace::server::cache {

/// Thread safety: all members, any thread; `take` without a lock.
class Arena {
 public:
  /// What is taken is rounded up to a multiple of this, and begins at one.
  static constexpr std::uint64_t kAlignment = 64;

  /// `name`: for messages, such as "source `photos`, cache.decoded". Address space alone is taken: pages come
  /// when they are first written. kNotEnoughMemory: not even that.
  static Result<std::shared_ptr<Arena>> create(std::string name, std::uint64_t budget);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Memory that lives as long as the arena; null if less than `size` is left.
  std::byte* take(std::uint64_t size);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t budget() const { return budget_; }
  [[nodiscard]] std::uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t left() const { return budget_ - used(); }

  void count_hit() { stripe().hits.fetch_add(1, std::memory_order_relaxed); }
  void count_miss() { stripe().misses.fetch_add(1, std::memory_order_relaxed); }
  void count_sample() { samples_.fetch_add(1, std::memory_order_relaxed); }
  /// Of a sample that is never kept. If it is so of all the first ones, the log tells of it.
  void count_refusal();

  struct Counts {
    std::uint64_t hits = 0;     ///< samples that were given out of the cache
    std::uint64_t misses = 0;   ///< samples that were asked for and had to be made
    std::uint64_t samples = 0;  ///< that are kept
  };
  [[nodiscard]] Counts counts() const;

 private:
  Arena(std::string name, std::uint64_t budget, std::byte* begin)
      : name_(std::move(name)), budget_(budget), begin_(begin) {}

  /// Workers count in lines of their own: one line for all would go from core to core with every sample.
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
