#include "clientlib/base/epoch_plan.h"

#include <algorithm>

#include "clientlib/base/contract.h"

namespace headrace {

EpochPlan::EpochPlan(std::uint64_t n, std::uint32_t batch_size, std::uint32_t world_size, LastBatch last)
    : n_(n), batch_size_(batch_size), world_size_(world_size), last_(last) {
  require(n >= 1 && batch_size >= 1 && world_size >= 1, "an epoch plan without samples, rows or ranks");
}

std::uint64_t EpochPlan::length(std::uint64_t origin) const {
  require(origin <= n_, "an origin past the end of the epoch");
  const std::uint64_t global = std::uint64_t{batch_size_} * world_size_;
  const std::uint64_t left = n_ - origin;
  const bool tail = left % global != 0 && last_ != LastBatch::kDrop;
  return left / global + (tail ? 1 : 0);
}

BatchRows EpochPlan::rows(std::uint64_t origin, std::uint64_t batch, std::uint32_t rank) const {
  require(batch < length(origin) && rank < world_size_, "a batch or rank outside of the epoch");
  const std::uint64_t global = std::uint64_t{batch_size_} * world_size_;
  const std::uint64_t begin = origin + batch * global;
  const std::uint64_t left = n_ - begin;
  std::uint64_t rows = batch_size_;
  if (left < global && last_ == LastBatch::kShort) rows = (left + world_size_ - 1) / world_size_;
  const std::uint64_t first = begin + rank * rows;
  const std::uint64_t valid = first >= n_ ? 0 : std::min(rows, n_ - first);
  return {first, static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(valid)};
}

std::uint64_t EpochPlan::consumed(std::uint64_t origin, std::uint64_t batch) const {
  require(origin <= n_, "an origin past the end of the epoch");
  return position_after(n_, origin, batch, std::uint64_t{batch_size_} * world_size_);
}

}  // namespace headrace
