#include "clientlib/gpu/copy/pinned_mapping.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace headrace::gpu {

PinnedMapping::PinnedMapping(Device& device, std::span<std::byte> mapping, std::size_t chunk,
                             std::shared_ptr<const void> owner)
    : device_(device), mapping_(mapping), chunk_(chunk), owner_(std::move(owner)) {
  // Some GPUs cannot register read-only memory. (In the server's read-only mode mprotect fails; then pinning
  // fails on such GPUs.)
  (void)::mprotect(mapping_.data(), mapping_.size(), PROT_READ | PROT_WRITE);
  for (std::size_t at = 0; at < mapping_.size(); at += chunk_) {
    const auto part = mapping_.subspan(at, std::min(chunk_, mapping_.size() - at));
    if (const auto pinned = device_.pin(part); !pinned) {
      refusal_ = pinned.error().message;
      for (const auto& done : chunks_) device_.unpin(done);
      chunks_.clear();
      break;
    }
    chunks_.push_back(part);
  }
  // Read-only again: a stray write in this process must crash it, not corrupt a batch that others read.
  (void)::mprotect(mapping_.data(), mapping_.size(), PROT_READ);
}

PinnedMapping::~PinnedMapping() {
  for (const auto& part : chunks_) device_.unpin(part);
}

bool PinnedMapping::holds(const std::byte* source, std::size_t bytes) const {
  if (!pinned() || source < mapping_.data()) return false;
  const auto offset = static_cast<std::size_t>(source - mapping_.data());
  return offset <= mapping_.size() && bytes <= mapping_.size() - offset;
}

std::size_t PinnedMapping::contiguous(const std::byte* source) const {
  const auto offset = static_cast<std::size_t>(source - mapping_.data());
  return chunk_ - offset % chunk_;
}

}  // namespace headrace::gpu
