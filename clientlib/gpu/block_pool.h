// Device memory that is used again: behind the marks of the streams that read it last.
//
// Thread safety: any thread. A block's end may be after its pool's owner is gone: blocks share the pool.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "clientlib/gpu/device.h"
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

  // Of blocks of take():
  /// What `stream` has queued when the block comes back, reads it.
  static void used_on(const DeviceBlock& block, StreamHandle stream);
  /// Copies that are queued from now on find the block unused. By the thread that copies.
  static Result<void> hold_copies(const DeviceBlock& block);

 private:
  struct Block {
    std::shared_ptr<BlockPool> pool;
    std::byte* data;
    std::size_t bytes;
    std::vector<Mark> after;  // of the streams that had it before
    std::mutex mutex;
    std::set<StreamHandle> users;  // guarded by mutex
  };
  struct Free {
    std::byte* data;
    std::size_t bytes;
    std::vector<Mark> after;
  };
  void give_back(Block& block);

  const std::shared_ptr<Device> device_;
  const std::size_t spare_;
  std::mutex mutex_;
  std::vector<Free> free_;  // guarded by mutex_; the one that came back first is at the front
};

}  // namespace headrace::gpu
