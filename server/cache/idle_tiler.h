// Rewrites the JPEGs of a cache `encoded` as tiled ones (decode/jpeg_tiles.h) while workers are idle: about
// 10 ms once for an image of 500 x 375, and every later crop of it takes a sixth less time.
//
//   OPEN ──tile_one──> SETTLED     its bytes do not change any more, tiled or as they were read
//
// A tiled file overwrites its original, which was admitted with room for it. The budget therefore holds by
// itself, nothing has to be freed and no gap is left. A file that would outgrow that room stays as it is.
//
// Readers copy an OPEN sample under a shared lock (about 10 us of the millisecond that an image takes), so
// none holds a span into it. The tiler reads it without a lock, because no other thread writes it, and takes
// the lock only to overwrite it with the finished file. A SETTLED sample is read as in any cache, without a
// lock or a copy.
//
// Invariants: 1. `waiting_` holds an index at most once, and only OPEN ones. 2. Only the worker that took an
// index out of `waiting_` writes the sample's bytes, under the sample's lock. 3. SETTLED is stored with
// release after that, and read with acquire before a span is returned (SYNC settled-sample).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "server/cache/sample_cache.h"
#include "server/decode/tile_jpeg.h"
#include "server/source/source.h"

namespace headrace::server::cache {

/// Thread safety: any thread may call any member.
class IdleTiler {
 public:
  /// Larger images stay as they are: rewriting one takes 12 to 16 bytes per pixel beside the budget, and
  /// keeps the worker from batches for 50 ns per pixel.
  static constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 22;
  /// Memory of a worker that rewrites the largest image with four channels.
  static constexpr std::uint64_t kMostBytes = 16 * kMostPixels;
  /// Per sample, beside SampleCache's table.
  static constexpr std::uint64_t kTableBytes = 9;

  /// For a cache of samples with these fields. Every sample must be admitted with room_for() and reported to
  /// admitted().
  IdleTiler(std::shared_ptr<SampleCache> cache, std::uint64_t samples,
            const std::vector<source::SourceField>& fields);

  /// The `room` for Claim::admit().
  [[nodiscard]] std::vector<std::uint64_t> room_for(std::span<const Piece> pieces) const;
  /// A sample was admitted, with `room`.
  void admitted(std::uint64_t index, std::span<const std::uint64_t> room);

  /// Whether the sample's kept pieces do not change any more.
  [[nodiscard]] bool settled(std::uint64_t index) const {
    return settled_[index].load(std::memory_order_acquire);  // SYNC settled-sample
  }
  /// Copies a kept sample that may not be settled yet.
  void copy(std::uint64_t index, source::Sample& out);

  /// Whether a sample waits; another worker may take it first.
  [[nodiscard]] bool has_work() const { return waiting_count_.load(std::memory_order_relaxed) > 0; }
  /// Settles one waiting sample; returns at once if there is none. `tiler`: the worker's own; it keeps the
  /// memory of its largest image until it is reset. Does not throw.
  void tile_one(std::optional<decode::JpegTiler>& tiler);

  struct Counts {
    std::uint64_t tiled = 0, untiled = 0;       ///< settled images
    std::uint64_t waiting = 0;                  ///< samples
    std::uint64_t bytes_before = 0, bytes = 0;  ///< sizes of the tiled images
    std::uint64_t busy_ns = 0;                  ///< sum over all workers
  };
  [[nodiscard]] Counts counts() const;

 private:
  /// A tiled file that will overwrite a piece.
  struct Tiled {
    std::size_t piece;
    std::vector<std::uint8_t> bytes;
  };
  std::vector<Tiled> tile(std::span<const Piece> pieces, std::optional<decode::JpegTiler>& tiler) const;
  std::shared_mutex& lock_of(std::uint64_t index) { return locks_[index % locks_.size()]; }
  void settle(std::uint64_t index) {
    settled_[index].store(true, std::memory_order_release);  // SYNC settled-sample
  }

  const std::shared_ptr<SampleCache> cache_;
  const std::vector<bool> images_;  ///< one per field
  std::uint64_t images_per_sample_ = 0;
  const std::unique_ptr<std::atomic<bool>[]> settled_;
  std::array<std::shared_mutex, 64> locks_;
  std::atomic<std::uint64_t> waiting_count_{0};  ///< equals waiting_.size(); written under mutex_
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> waiting_;  // guarded by mutex_, as the next
  Counts counts_;
};

}  // namespace headrace::server::cache
