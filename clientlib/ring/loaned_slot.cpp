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

std::byte* LoanedSlot::values(std::size_t field) const {
  require(ring_ != nullptr && field < ring_->layout_.fields.size(), "a field of a slot that is not loaned");
  return ring_->data_.data() + index_ * ring_->layout_.slot_stride +
         ring_->layout_.fields[field].values_offset;
}

std::int64_t* LoanedSlot::offsets(std::size_t field) const {
  require(ring_ != nullptr && field < ring_->layout_.fields.size(), "a field of a slot that is not loaned");
  const std::uint64_t offset = ring_->layout_.fields[field].offsets_offset;
  require(offset != 0, "a dense field has no offsets");
  return reinterpret_cast<std::int64_t*>(ring_->data_.data() + index_ * ring_->layout_.slot_stride + offset);
}

RowDesc* LoanedSlot::rows() const {
  require(ring_ != nullptr, "rows of a slot that is not loaned");
  return reinterpret_cast<RowDesc*>(ring_->data_.data() + index_ * ring_->layout_.slot_stride +
                                    ring_->layout_.rows_offset);
}

}  // namespace headrace::ring
