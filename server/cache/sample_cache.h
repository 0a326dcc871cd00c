// What was made of each sample, kept for whoever wants the same: one entry per sample, filled once.
//
//   EMPTY ──look──> FILLING ──admit──> READY      for good: spans into it live as long as the cache
//     ^                │  └──refuse──> REFUSED    for good: no room for it, or not to be kept
//     └────abandoned───┘
//
// Of several workers that miss together one fills; the others wait for it, since it began before them and so
// is ready before they would be, and their cores are worth more than that wait. If it takes longer than
// `patience` (it may not be running), they make the sample themselves, and nobody keeps theirs.
//
// Invariants: 1. An entry leaves FILLING by its claim alone. 2. READY and REFUSED never change, nor do the
// pieces of a READY one, except by rewrite(), whose caller keeps readers away. 3. `pieces` is written before
// READY is stored with release, and read after READY was seen with acquire (SYNC cache-entry).
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
  decode::PixelShape pixels;   ///< as source::Item's
  decode::ImageSize base;      ///< of decoded images: transform::Prepared's
  std::uint64_t capacity = 0;  ///< of a kept one: bytes that rewrite() may give it
};

/// Thread safety: all members, any thread. A hit takes no lock and writes nothing but a counter.
class SampleCache {
 public:
  /// The right, and the duty, to fill an entry. Dropped: the entry is empty again.
  class Claim {
   public:
    Claim(Claim&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)), index_(other.index_) {}
    Claim& operator=(Claim&&) = delete;
    ~Claim() {
      if (cache_ != nullptr) cache_->settle(index_, kEmpty);
    }

    /// Copies the pieces, at least one. `room`: bytes that each of them takes at least, for rewrite(); none:
    /// as many as it has. False: no room, which is as refuse().
    bool admit(std::span<const Piece> pieces, std::span<const std::uint64_t> room = {}) &&;
    /// This sample is never kept.
    void refuse() &&;

   private:
    friend class SampleCache;
    Claim(SampleCache& cache, std::uint64_t index) : cache_(&cache), index_(index) {}
    SampleCache* cache_;
    std::uint64_t index_;
  };

  /// Pieces, or (a miss) perhaps a claim.
  struct Found {
    std::span<const Piece> pieces;  ///< empty: make the sample
    std::optional<Claim> claim;     ///< and then say what becomes of it
  };

  /// Beside the arena's budget: of each sample.
  static constexpr std::uint64_t kTableBytes = 16;
  SampleCache(std::shared_ptr<Arena> arena, std::uint64_t samples,
              std::chrono::nanoseconds patience = std::chrono::seconds(1));

  /// index < samples. Waits at most `patience`.
  Found look(std::uint64_t index);
  /// Whether look() would give pieces: index < samples.
  [[nodiscard]] bool holds(std::uint64_t index) const {
    return entries_[index].state.load(std::memory_order_acquire) == kReady;  // SYNC cache-entry
  }
  /// The pieces of one that holds() says yes to, without counting a hit.
  [[nodiscard]] std::span<const Piece> kept(std::uint64_t index) const {
    return {entries_[index].pieces, entries_[index].count};
  }
  /// Puts other bytes in the place of a kept piece's. False: it has no capacity for them, and stays as it is.
  /// Nobody may read that piece meanwhile, and `bytes` does not lie in it.
  bool rewrite(std::uint64_t index, std::size_t piece, std::span<const std::uint8_t> bytes);
  /// Bytes that a sample's pieces can have and be admitted, as it looks now.
  [[nodiscard]] std::uint64_t room(std::size_t pieces) const;
  [[nodiscard]] const Arena& arena() const { return *arena_; }

 private:
  enum State : std::uint32_t { kEmpty, kFilling, kAwaited, kReady, kRefused };  // kAwaited: filling, and told

  struct Entry {
    std::atomic<std::uint32_t> state{kEmpty};
    std::uint32_t count = 0;
    Piece* pieces = nullptr;
  };

  void settle(std::uint64_t index, State state);
  /// False: it is still being filled, and patience is at its end.
  bool wait(Entry& entry) const;

  const std::shared_ptr<Arena> arena_;
  const std::unique_ptr<Entry[]> entries_;
  const std::uint64_t patience_ns_;
};

}  // namespace headrace::server::cache
