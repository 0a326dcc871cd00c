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
  /// Pins all of `mapping` or none of it: after a failure `refusal()` says why and nothing stays pinned. Then
  /// protects the mapping read-only, in this order because some GPUs cannot register read-only memory.
  PinnedMapping(Device& device, std::span<std::byte> mapping, std::size_t chunk,
                std::shared_ptr<const void> owner);
  PinnedMapping(const PinnedMapping&) = delete;
  PinnedMapping& operator=(const PinnedMapping&) = delete;
  ~PinnedMapping();

  [[nodiscard]] bool is(std::span<std::byte> mapping, const std::shared_ptr<const void>& owner) const {
    return mapping_.data() == mapping.data() && mapping_.size() == mapping.size() && owner_ == owner;
  }
  /// Nothing else owns the memory, so no further copy can read it.
  [[nodiscard]] bool orphaned() const { return owner_.use_count() == 1; }
  [[nodiscard]] std::size_t size() const { return mapping_.size(); }
  [[nodiscard]] bool pinned() const { return !chunks_.empty(); }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  /// Whether [source, source + bytes) is within pinned memory.
  [[nodiscard]] bool holds(const std::byte* source, std::size_t bytes) const;
  /// Bytes from `source` to the end of its chunk: no copy may cross two registrations.
  [[nodiscard]] std::size_t contiguous(const std::byte* source) const;

 private:
  Device& device_;
  std::span<std::byte> mapping_;
  std::size_t chunk_;
  std::shared_ptr<const void> owner_;
  std::vector<std::span<std::byte>> chunks_;  // the registered parts
  std::string refusal_;
};

}  // namespace headrace::gpu
