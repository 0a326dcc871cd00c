// The whole mutable state of an iteration: everything else can be rebuilt from it.
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

/// A position in a stream, the same on every rank of a group. With world size w and batch size B, batch k of
/// the group covers the positions [origin + k*B*w, origin + (k+1)*B*w) of the epoch's order. A new epoch
/// begins at origin 0, batch 0.
struct Cursor {
  std::uint64_t epoch = 0;
  std::uint64_t origin = 0;
  std::uint64_t batch = 0;

  friend auto operator<=>(const Cursor&, const Cursor&) = default;
};

/// The position in an epoch of `samples` that a group has reached after `batches` global batches of `rows`
/// rows (batch size times world size) from `origin` (<= samples). At another batch size or world size the
/// group resumes from it.
std::uint64_t position_after(std::uint64_t samples, std::uint64_t origin, std::uint64_t batches,
                             std::uint64_t rows);

std::string to_string(const Cursor& cursor);  ///< "epoch 3, batch 17", with the origin unless it is 0

/// How an epoch's last, incomplete global batch is handled. In each case all ranks have the same number of
/// batches. Wrapped rows repeat samples of the epoch.
enum class LastBatch : std::uint8_t {
  kShort,  ///< the ranks divide its samples evenly; at most w - 1 wrapped rows are flagged not valid
  kPad,    ///< it is filled with wrapped rows, which are flagged not valid
  kDrop,   ///< it is dropped
};

}  // namespace headrace
