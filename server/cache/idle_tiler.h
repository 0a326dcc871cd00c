// Rewrites the JPEGs of a cache `encoded` as tiled ones (decode/jpeg_tiles.h) while workers have nothing else
// to do: some 10 ms for an image of 500 x 375, once, and a fifth less for every crop of it afterwards.
//
//   OPEN ──tile_one──> SETTLED     what its bytes are from then on, tiled or as they were read
//
// A tiled file takes the place of the one that it was made of, which was admitted with room for it. So the
// budget holds by itself, nothing has to be given back, and no hole is left behind: a file that grows by more
// than that room stays as it is.
//
// Readers of an OPEN sample copy it under a shared lock (some 10 us of an image's millisecond), so nobody
// holds a span into it; its tiler reads it without a lock, for nobody else writes it, and takes the lock
// alone just to copy the finished file over it. A SETTLED sample is lent as by any cache, without lock or
// copy.
//
// Invariants: 1. `waiting_` holds an index at most once, and OPEN ones only. 2. Bytes are written only by the
// worker that took their index out of `waiting_`, under the sample's lock. 3. SETTLED is stored with release
// after that, and read with acquire before a span is given out (SYNC settled-sample).
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

/// Thread safety: all members, any thread.
class IdleTiler {
 public:
  /// Larger images stay as they are: beside the budget, a worker takes 12 to 16 bytes a pixel while it
  /// rewrites one, and is not there for batches for 50 ns a pixel.
  static constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 22;
  /// Of memory, by a worker that rewrites one with four channels.
  static constexpr std::uint64_t kMostBytes = 16 * kMostPixels;
  /// Beside SampleCache's table: of each sample.
  static constexpr std::uint64_t kTableBytes = 9;

  /// Of a cache of samples with these fields, to which all are admitted with room_for() and told of.
  IdleTiler(std::shared_ptr<SampleCache> cache, std::uint64_t samples,
            const std::vector<source::SourceField>& fields);

  /// For Claim::admit().
  [[nodiscard]] std::vector<std::uint64_t> room_for(std::span<const Piece> pieces) const;
  /// A sample was admitted, with `room`.
  void admitted(std::uint64_t index, std::span<const std::uint64_t> room);

  /// Whether the sample's kept pieces are what they will always be.
  [[nodiscard]] bool settled(std::uint64_t index) const {
    return settled_[index].load(std::memory_order_acquire);  // SYNC settled-sample
  }
  /// Copies a kept sample that was not settled, whatever it is by now.
  void copy(std::uint64_t index, source::Sample& out);

  /// Whether there is something to do; another worker may take it.
  [[nodiscard]] bool waits() const { return waits_.load(std::memory_order_relaxed) > 0; }
  /// Settles one sample that waits; returns at once if there is none. `tiler`: the worker's own; it keeps the
  /// memory of its largest image until it is reset. Does not throw.
  void tile_one(std::optional<decode::JpegTiler>& tiler);

  struct Counts {
    std::uint64_t tiled = 0, untiled = 0;       ///< images that are settled
    std::uint64_t waiting = 0;                  ///< samples
    std::uint64_t bytes_before = 0, bytes = 0;  ///< of the tiled ones
    std::uint64_t busy_ns = 0;                  ///< of all workers
  };
  [[nodiscard]] Counts counts() const;

 private:
  /// A tiled file, to be put in the place of a piece.
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
  const std::vector<bool> images_;  ///< of each field
  std::uint64_t images_per_sample_ = 0;
  const std::unique_ptr<std::atomic<bool>[]> settled_;
  std::array<std::shared_mutex, 64> locks_;
  std::atomic<std::uint64_t> waits_{0};  ///< as waiting_.size(); written under mutex_
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> waiting_;  // guarded by mutex_, as is the next
  Counts counts_;
};

}  // namespace headrace::server::cache
