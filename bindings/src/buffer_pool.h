// Buffers for private copies, used again once no array refers to them: fresh pages for each batch would cost
// more than the copy.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace headrace::python {

struct BufferDeleter {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Buffer = std::unique_ptr<std::byte[], BufferDeleter>;

class BufferPool {
 public:
  Buffer take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      for (auto& [size, memory] : kept_)
        if (size == bytes && memory) return std::move(memory);
    }
    return Buffer(new (std::align_val_t{64}) std::byte[bytes]);
  }

  void give_back(Buffer memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_, [](const auto& entry) { return !entry.second; });
    if (kept_.size() < kMost) kept_.emplace_back(bytes, std::move(memory));
  }

 private:
  static constexpr std::size_t kMost = 6;  ///< image and label of three batches
  std::mutex mutex_;
  std::vector<std::pair<std::size_t, Buffer>> kept_;  // guarded by mutex_; a null entry was taken
};

}  // namespace headrace::python
