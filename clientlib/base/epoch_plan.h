// The positions of an epoch that each batch of each rank covers. Pure functions.
#pragma once

#include <cstdint>

#include "headrace/cursor.h"

namespace headrace {

/// The rows of one batch of one rank: positions first .. first + rows - 1, modulo n past the epoch's end. The
/// first `valid` rows are real; the rest are wrapped duplicates.
struct BatchRows {
  std::uint64_t first = 0;
  std::uint32_t rows = 0;
  std::uint32_t valid = 0;
};

/// How an epoch of n samples is cut for a group. Thread safety: immutable.
class EpochPlan {
 public:
  /// n >= 1, batch_size >= 1, world_size >= 1.
  EpochPlan(std::uint64_t n, std::uint32_t batch_size, std::uint32_t world_size, LastBatch last);

  /// The number of batches in an epoch that begins at `origin` (0 <= origin <= n): the same for each rank.
  [[nodiscard]] std::uint64_t length(std::uint64_t origin) const;
  /// batch < length(origin), rank < world_size.
  [[nodiscard]] BatchRows rows(std::uint64_t origin, std::uint64_t batch, std::uint32_t rank) const;
  /// The position up to which the group has consumed the epoch after `batch` batches, at most n: the origin
  /// from which to resume at another world size or batch size.
  [[nodiscard]] std::uint64_t consumed(std::uint64_t origin, std::uint64_t batch) const;

 private:
  std::uint64_t n_;
  std::uint32_t batch_size_, world_size_;
  LastBatch last_;
};

}  // namespace headrace
