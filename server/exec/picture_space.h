// Where workers put the pictures of one batch that are finished on the device: the ring's field of them
// (clientlib/pixels/picture_rows.h).
//
// Thread safety: any number of workers, each for other rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "clientlib/pixels/picture_rows.h"
#include "server/transform/plan.h"

namespace headrace::server::exec {

class PictureSpace {
 public:
  /// `field`: the batch's, of `parts` bytes.
  PictureSpace(std::byte* field, const pixels::PictureRows& parts) : field_(field), parts_(parts) {}

  /// A picture's bytes in the pool, or null: they no longer fit.
  std::byte* take(std::uint64_t bytes) {
    constexpr std::uint64_t kAlignment = 16;  // the kernel's loads
    const std::uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::uint64_t room = parts_.bytes() - parts_.pool();
    const std::uint64_t at = used_.fetch_add(whole, std::memory_order_relaxed);
    return at <= room && bytes <= room - at ? field_ + parts_.pool() + at : nullptr;
  }
  [[nodiscard]] std::byte* finished(std::uint32_t row) const { return field_ + parts_.finished(row); }

  void describe(std::uint32_t row, const transform::LeftPicture& picture) {
    const pixels::PictureRow entry{picture.steps, static_cast<std::uint64_t>(picture.at - field_),
                                   picture.size.height, picture.size.width};
    std::memcpy(field_ + row * sizeof entry, &entry, sizeof entry);
    if (picture.finished) finished_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Of the pictures that are there, and how many were finished here.
  [[nodiscard]] std::uint64_t bytes() const {
    return std::min(used_.load(std::memory_order_relaxed), parts_.bytes() - parts_.pool()) +
           finished_rows() * parts_.finished_bytes;
  }
  [[nodiscard]] std::uint64_t finished_rows() const { return finished_.load(std::memory_order_relaxed); }

 private:
  std::byte* const field_;
  const pixels::PictureRows parts_;
  std::atomic<std::uint64_t> used_{0}, finished_{0};
};

}  // namespace headrace::server::exec
