// A ring's data mapping, registered with the device in chunks and read-only afterwards.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "clientlib/gpu/device/device.h"

namespace headrace::gpu {

class PinnedMapping {
 public:
  /// REQUIRES: `owner` is not null.
  PinnedMapping(Device& device, std::span<std::byte> mapping, std::size_t chunk,
                std::shared_ptr<const void> owner);
  PinnedMapping(const PinnedMapping&) = delete;
  PinnedMapping& operator=(const PinnedMapping&) = delete;
  ~PinnedMapping();

  [[nodiscard]] bool is(std::span<std::byte> mapping, const std::shared_ptr<const void>& owner) const {
    return memory_ == mapping.data() && owner_ == owner;
  }
  /// The mapping ends here now: pins all of what was added, or none of it. After a failure `refusal()` says
  /// why, and nothing more is pinned. Then protects that part read-only, in this order because some GPUs
  /// cannot register read-only memory.
  void grow(std::size_t bytes);
  /// Nothing else owns the memory, so no further copy can read it.
  [[nodiscard]] bool orphaned() const { return owner_.use_count() == 1; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t pinned_bytes() const { return chunk_ends_.empty() ? 0 : chunk_ends_.back(); }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }  ///< empty: all is pinned
  /// Whether [source, source + bytes) is within the mapping.
  [[nodiscard]] bool holds(const std::byte* source, std::size_t bytes) const {
    return source >= memory_ && source <= memory_ + size_ &&
           bytes <= static_cast<std::size_t>(memory_ + size_ - source);
  }
  /// The same for its pinned part, which is at the beginning.
  [[nodiscard]] bool pins(const std::byte* source, std::size_t bytes) const {
    return holds(source, bytes) && source + bytes <= memory_ + pinned_bytes() &&
           source < memory_ + pinned_bytes();
  }
  /// Bytes from `source` to the end of its chunk or of what is not pinned: no copy may cross a registration's
  /// boundary. REQUIRES: holds(source, 1).
  [[nodiscard]] std::size_t contiguous(const std::byte* source) const;

 private:
  void unpin_from(std::size_t begin);

  Device& device_;
  std::byte* memory_;
  std::size_t chunk_;
  std::shared_ptr<const void> owner_;
  std::size_t size_ = 0;
  std::vector<std::size_t> chunk_ends_;  // of the registered parts, which begin at 0 and follow each other
  std::string refusal_;
};

}  // namespace headrace::gpu
