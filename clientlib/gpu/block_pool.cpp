#include "clientlib/gpu/block_pool.h"

#include <utility>

namespace headrace::gpu {

BlockPool::~BlockPool() {
  for (const Free& block : free_) device_->free(block.data);
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
  if (block->data == nullptr || block->bytes < bytes) {
    if (block->data != nullptr) device_->free(block->data);
    auto memory = device_->allocate(bytes);
    if (!memory) return fail(memory.error());
    block->data = *memory;
    block->bytes = bytes;
    block->after.clear();
  }
  block->pool = shared_from_this();
  std::byte* data = block->data;
  const std::shared_ptr<Block> owner(block.release(), [](Block* returned) {
    const std::unique_ptr<Block> end(returned);
    end->pool->give_back(*end);
  });
  return DeviceBlock{data, bytes, owner};
}

void BlockPool::give_back(Block& block) {
  std::vector<Mark> after = std::move(block.after);  // of one that was never filled
  for (const StreamHandle stream : block.users) {
    const auto mark = device_->record_on(stream);
    if (!mark) {  // nobody can tell any more when it is unused; freeing waits for the device
      device_->free(block.data);
      return;
    }
    after.push_back(*mark);
  }
  const std::lock_guard lock(mutex_);
  if (free_.size() >= spare_)
    device_->free(block.data);
  else
    free_.push_back({block.data, block.bytes, std::move(after)});
}

void BlockPool::used_on(const DeviceBlock& block, StreamHandle stream) {
  auto& mine = *std::static_pointer_cast<Block>(block.owner);
  const std::lock_guard lock(mine.mutex);
  mine.users.insert(stream);
}

Result<void> BlockPool::hold_copies(const DeviceBlock& block) {
  auto& mine = *std::static_pointer_cast<Block>(block.owner);
  for (const Mark mark : std::exchange(mine.after, {}))
    if (auto held = mine.pool->device_->hold_copies(mark); !held) return held;
  return {};
}

}  // namespace headrace::gpu
