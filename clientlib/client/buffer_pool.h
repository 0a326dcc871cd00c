// Buffers for private copies. They are reused once nothing refers to them, because fresh pages for each batch
// would cost more than the copy. In a loop that keeps no batches, two buffers per field are in use: one for
// the loop's current batch, and one that next() fills.
//
// Thread safety: any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "clientlib/client/fork_guard.h"

namespace headrace::client {

struct BufferDeleter {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};

struct Buffer {
  std::unique_ptr<std::byte[], BufferDeleter> memory;
  std::size_t capacity = 0;
};

class BufferPool {
 public:
  /// `most`: how many free buffers are kept; as many as a batch has fields.
  explicit BufferPool(std::size_t most) : most_(most) { kept_.reserve(most + 1); }

  /// A buffer of at least `bytes`: the smallest free one that fits, unless less than a quarter of it would be
  /// used; else a new one.
  Buffer take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto best = kept_.end();
      for (auto entry = kept_.begin(); entry != kept_.end(); ++entry)
        if (entry->capacity >= bytes && entry->capacity / 4 <= bytes &&
            (best == kept_.end() || entry->capacity < best->capacity))
          best = entry;
      if (best != kept_.end()) {
        Buffer found = std::move(*best);
        kept_.erase(best);
        return found;
      }
    }
    return {std::unique_ptr<std::byte[], BufferDeleter>(new (std::align_val_t{64}) std::byte[bytes]), bytes};
  }

  [[nodiscard]] bool forked() const { return fork_.forked(); }

  /// Returns a buffer to the pool. If there are then too many, the smallest is freed: pages of a large one
  /// cost the most to allocate again.
  void give_back(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(buffer));
    if (kept_.size() > most_)
      kept_.erase(std::min_element(kept_.begin(), kept_.end(),
                                   [](const Buffer& a, const Buffer& b) { return a.capacity < b.capacity; }));
  }

 private:
  ForkGuard fork_;
  std::size_t most_;
  std::mutex mutex_;
  std::vector<Buffer> kept_;  // guarded by mutex_
};

/// A buffer that returns to its pool.
struct PooledBuffer {
  std::shared_ptr<BufferPool> pool;
  Buffer buffer;

  PooledBuffer(std::shared_ptr<BufferPool> from, std::size_t bytes)
      : pool(std::move(from)),
        buffer(pool->take(bytes)) {}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): Buffer frees it
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;
  /// In a forked child the pool's lock may be held for ever.
  ~PooledBuffer() {
    if (!pool->forked()) pool->give_back(std::move(buffer));
  }
  [[nodiscard]] std::byte* data() const { return buffer.memory.get(); }
};

}  // namespace headrace::client
