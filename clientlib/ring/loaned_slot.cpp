#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/ring/ring_writer.h"

namespace headrace::ring {

LoanedSlot::LoanedSlot(LoanedSlot&& other) noexcept
    : ring_(std::exchange(other.ring_, nullptr)), index_(other.index_), generation_(other.generation_) {}

LoanedSlot& LoanedSlot::operator=(LoanedSlot&& other) noexcept {
  require(ring_ == nullptr || this == &other,
          "a loaned slot was overwritten without being published or abandoned");
  ring_ = std::exchange(other.ring_, nullptr);
  index_ = other.index_;
  generation_ = other.generation_;
  return *this;
}

LoanedSlot::~LoanedSlot() {
  if (ring_ != nullptr) ring_->abandon(std::move(*this));
}

SlotMemory LoanedSlot::memory() const {
  require(ring_ != nullptr, "memory of a slot that is not loaned");
  return {ring_->data_.data() + index_ * ring_->layout_.slot_stride, ring_->layout_};
}

}  // namespace headrace::ring
