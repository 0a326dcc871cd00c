// Device memory that is used again: behind the marks of the streams that read it last.
//
// Thread safety: any thread. A block's end may be after its pool's owner is gone: blocks share the pool.
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
  /// `spare`: blocks that are kept for later; what comes back beyond them is freed.
  BlockPool(std::shared_ptr<Device> device, std::size_t spare) : device_(std::move(device)), spare_(spare) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  /// Of one size per pool. kNotEnoughMemory.
  Result<DeviceBlock> take(std::size_t bytes);

  /// A batch in a block of take() has ended. The block is used again behind what these streams have queued
  /// by now. `by_host`: the host has waited for it, so anybody may read it: the block is not used again.
  static void leave(const DeviceBlock& block, const std::set<StreamHandle>& streams, bool by_host);
  /// Copies that are queued from now on find a block of take() unused. By the thread that copies.
  static Result<void> hold_copies(const DeviceBlock& block);

 private:
  struct Block {
    std::shared_ptr<BlockPool> pool;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::mutex mutex;
    std::vector<Mark> after;  // guarded by mutex, as is the next
    bool spent = false;       // not to be used again
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
  std::vector<Free> free_;  // guarded by mutex_; the one that came back first is at the front
};

}  // namespace headrace::gpu
