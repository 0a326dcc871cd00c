#include "clientlib/gpu/copy/pinned_mapping.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace headrace::gpu {

PinnedMapping::PinnedMapping(Device& device, std::span<std::byte> mapping, std::size_t chunk,
                             std::shared_ptr<const void> owner)
    : device_(device), memory_(mapping.data()), chunk_(chunk), owner_(std::move(owner)) {
  grow(mapping.size());
}

PinnedMapping::~PinnedMapping() {
  unpin_from(0);
}

void PinnedMapping::grow(std::size_t bytes) {
  const std::size_t begin = std::exchange(size_, bytes);
  if (bytes <= begin || !refusal_.empty()) return;
  // Some GPUs cannot register read-only memory. (In the server's read-only mode mprotect fails; then pinning
  // fails on such GPUs.)
  (void)::mprotect(memory_ + begin, bytes - begin, PROT_READ | PROT_WRITE);
  for (std::size_t at = begin; at < bytes;) {
    const std::size_t end = std::min(at + chunk_, bytes);
    if (const auto pinned = device_.pin({memory_ + at, end - at}); !pinned) {
      refusal_ = pinned.error().message;
      unpin_from(begin);
      break;
    }
    chunk_ends_.push_back(at = end);
  }
  // Read-only again: a stray write in this process must crash it, not corrupt a batch that others read.
  (void)::mprotect(memory_ + begin, bytes - begin, PROT_READ);
}

void PinnedMapping::unpin_from(std::size_t begin) {
  while (pinned_bytes() > begin) {
    const std::size_t end = pinned_bytes();
    chunk_ends_.pop_back();
    device_.unpin({memory_ + pinned_bytes(), end - pinned_bytes()});
  }
}

std::size_t PinnedMapping::contiguous(const std::byte* source) const {
  const auto offset = static_cast<std::size_t>(source - memory_);
  const auto end = std::upper_bound(chunk_ends_.begin(), chunk_ends_.end(), offset);
  return (end == chunk_ends_.end() ? size_ : *end) - offset;
}

}  // namespace headrace::gpu
