// A pool of device memory. A block is reused once the streams that read it have passed their marks.
//
// Thread safety: any thread. A block may outlive the pool's owner: blocks share ownership of the pool.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "clientlib/client/fork_guard.h"
#include "clientlib/gpu/device/device.h"
#include "headrace/device_loader.h"

namespace headrace::gpu {

class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  /// `spare`: how many returned blocks are kept for reuse; further ones are freed.
  BlockPool(std::shared_ptr<Device> device, std::size_t spare) : device_(std::move(device)), spare_(spare) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  /// All blocks of a pool have the same size. Error: kNotEnoughMemory.
  Result<DeviceBlock> take(std::size_t bytes);

  /// Call when a batch in a block from take() is destroyed. The block is reused after the work that these
  /// streams have queued so far. `by_host`: the host waited for the batch, so host code may still read the
  /// block: it is freed instead of reused.
  static void leave(const DeviceBlock& block, const std::set<StreamHandle>& streams, bool by_host);
  /// Copies that are queued from now on begin after the last readers of a block from take(). Called by the
  /// copying thread.
  static Result<void> hold_copies(const DeviceBlock& block);

 private:
  struct Block {
    std::shared_ptr<BlockPool> pool;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::mutex mutex;
    std::vector<Mark> after;  // guarded by mutex, as is the next
    bool spent = false;       // must not be reused
  };
  struct Free {
    std::byte* data;
    std::size_t bytes;
    std::vector<Mark> after;
  };
  void give_back(Block& block);
  void free(std::byte* data, const std::vector<Mark>& after);

  const client::ForkGuard fork_;
  const std::shared_ptr<Device> device_;
  const std::size_t spare_;
  std::mutex mutex_;
  std::vector<Free> free_;  // guarded by mutex_; the block that was returned first is at the front
};

}  // namespace headrace::gpu
