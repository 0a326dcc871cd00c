#include "clientlib/gpu/copy/block_pool.h"

#include <utility>

namespace headrace::gpu {

BlockPool::~BlockPool() {
  for (const Free& block : free_) free(block.data, block.after);
}

void BlockPool::free(std::byte* data, const std::vector<Mark>& after) {
  for (const Mark mark : after) device_->drop(mark);
  device_->free(data);
}

Result<DeviceBlock> BlockPool::take(std::size_t bytes) {
  auto block = std::make_unique<Block>();
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      block->data = free_.front().data;
      block->bytes = free_.front().bytes;
      block->after = std::move(free_.front().after);
      free_.erase(free_.begin());
    }
  }
  if (block->data == nullptr) {
    auto memory = device_->allocate(bytes);
    if (!memory) return fail(memory.error());
    block->data = *memory;
    block->bytes = bytes;
  }
  block->pool = shared_from_this();
  std::byte* data = block->data;
  const std::shared_ptr<Block> owner(block.release(), [](Block* returned) {
    if (returned->pool->fork_.forked()) return;  // the parent owns it, and its pool and device
    const std::unique_ptr<Block> end(returned);
    end->pool->give_back(*end);
  });
  return DeviceBlock{data, bytes, owner};
}

void BlockPool::give_back(Block& block) {
  if (!block.spent) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < spare_) {
      free_.push_back({block.data, block.bytes, std::move(block.after)});
      return;
    }
  }
  free(block.data, block.after);  // without the mutex: it may wait for the device
}

void BlockPool::leave(const DeviceBlock& block, const std::set<StreamHandle>& streams, bool by_host) {
  auto& mine = *std::static_pointer_cast<Block>(block.owner);
  if (mine.pool->fork_.forked()) return;
  const std::lock_guard lock(mine.mutex);
  mine.spent = mine.spent || by_host;
  for (const StreamHandle stream : streams) {
    if (const auto mark = mine.pool->device_->record_on(stream))
      mine.after.push_back(*mark);
    else
      mine.spent = true;  // without a mark, only freeing, which waits for the device, is safe
  }
}

Result<void> BlockPool::hold_copies(const DeviceBlock& block) {
  auto& mine = *std::static_pointer_cast<Block>(block.owner);
  const std::lock_guard lock(mine.mutex);
  Result<void> all;
  for (const Mark mark : std::exchange(mine.after, {}))
    if (auto held = mine.pool->device_->hold_copies(mark); !held) all = held;
  mine.spent = mine.spent || !all;  // a reader may still use it
  return all;
}

}  // namespace headrace::gpu
