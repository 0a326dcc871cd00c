// Keeps what was made of each sample for all users that need the same: one entry per sample, filled once.
// Callers count hits and kept samples in the arena, because a sample may have entries in several caches.
//
//   EMPTY ──lookup──> FILLING ──admit──> READY      final: spans into it are valid as long as the cache
//     ^                  │  └──refuse──> REFUSED    final: no room for it, or not to be kept
//     └─────abandoned────┘
//
// If several workers miss together, one fills the entry and the others wait: it began first, so it finishes
// before they would, and their cores have other work. If it takes longer than `patience` (it may not be
// scheduled), they make the sample themselves, and their results are not kept.
//
// Invariants: 1. Only its claim moves an entry out of FILLING. 2. READY and REFUSED never change, nor do the
// pieces of a READY entry, except by rewrite(), whose caller keeps readers away. 3. `pieces` is written
// before READY is stored with release, and read after READY was loaded with acquire (SYNC cache-entry).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "server/cache/arena.h"
#include "server/decode/decoder.h"

namespace headrace::server::cache {

/// One field of a sample.
struct Piece {
  std::span<const std::uint8_t> bytes;
  decode::PixelShape pixels;   ///< as in source::Item
  decode::ImageSize base;      ///< for decoded images: as in transform::Prepared
  std::uint64_t capacity = 0;  ///< for a kept piece: bytes that rewrite() may give it
};

/// Thread safety: any thread may call any member. A hit takes no lock and writes only a counter.
class SampleCache {
 public:
  /// The right and the duty to fill an entry. If it is dropped, the entry is empty again.
  class Claim {
   public:
    Claim(Claim&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)), index_(other.index_) {}
    Claim& operator=(Claim&&) = delete;
    ~Claim() {
      if (cache_ != nullptr) cache_->settle(index_, kEmpty);
    }

    /// Copies the pieces, at least one. `room`: least bytes to reserve for each of them, for rewrite();
    /// empty: their sizes. False: there is no room, and the entry is refused.
    bool admit(std::span<const Piece> pieces, std::span<const std::uint64_t> room = {}) &&;
    /// This sample is never kept.
    void refuse() &&;

   private:
    friend class SampleCache;
    Claim(SampleCache& cache, std::uint64_t index) : cache_(&cache), index_(index) {}
    SampleCache* cache_;
    std::uint64_t index_;
  };

  /// The pieces, or after a miss perhaps a claim.
  struct Found {
    std::span<const Piece> pieces;  ///< empty: the caller makes the sample
    std::optional<Claim> claim;     ///< the caller then fills or refuses the entry
  };

  /// Per sample, beside the arena's budget.
  static constexpr std::uint64_t kTableBytes = 16;
  SampleCache(std::shared_ptr<Arena> arena, std::uint64_t samples,
              std::chrono::nanoseconds patience = std::chrono::seconds(1));

  enum class IfFilling : std::uint8_t {
    kWait,      ///< at most `patience`
    kDoNotWait  ///< for a caller that holds claims: the other worker may be waiting for one of them
  };
  /// index < samples. `filling`: what to do while another worker fills the entry.
  Found lookup(std::uint64_t index, IfFilling filling = IfFilling::kWait);
  /// Waits, at most `patience`, while another worker fills the entry.
  void await(std::uint64_t index) const;
  /// Whether lookup() would give pieces: index < samples.
  [[nodiscard]] bool holds(std::uint64_t index) const {
    return entries_[index].state.load(std::memory_order_acquire) == kReady;  // SYNC cache-entry
  }
  /// The pieces of a READY entry; empty if it is not READY. index < samples.
  [[nodiscard]] std::span<const Piece> kept(std::uint64_t index) const {
    const Entry& entry = entries_[index];
    if (!holds(index)) return {};
    return {entry.pieces, entry.count};
  }
  /// Replaces the bytes of a kept piece. False: its capacity is too small, and it stays as it is. No other
  /// thread may read that piece meanwhile, and `bytes` must not overlap it.
  bool rewrite(std::uint64_t index, std::size_t piece, std::span<const std::uint8_t> bytes);
  [[nodiscard]] Arena& arena() const { return *arena_; }

 private:
  // kAwaited: filling, and waiters must be woken.
  enum State : std::uint32_t { kEmpty, kFilling, kAwaited, kReady, kRefused };

  struct Entry {
    std::atomic<std::uint32_t> state{kEmpty};
    std::uint32_t count = 0;
    Piece* pieces = nullptr;
  };

  void settle(std::uint64_t index, State state);
  /// False: it is still being filled, and `patience` has run out.
  bool wait(std::atomic<std::uint32_t>& state) const;

  const std::shared_ptr<Arena> arena_;
  const std::unique_ptr<Entry[]> entries_;
  const std::uint64_t patience_ns_;
};

}  // namespace headrace::server::cache
