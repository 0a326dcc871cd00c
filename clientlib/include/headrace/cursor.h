// The whole mutable state of an iteration. Everything else can be thrown away (design: Positions, tails,
// cursors).
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

/// Batch k of a group with world size w and batch size B covers the positions [origin + k*B*w, origin +
/// (k+1)*B*w) of the epoch's order; it is the same on every rank. A new epoch begins at origin 0, batch 0.
struct Cursor {
  std::uint64_t epoch = 0;
  std::uint64_t origin = 0;
  std::uint64_t batch = 0;

  friend auto operator<=>(const Cursor&, const Cursor&) = default;
};

/// Up to which position of an epoch of `samples` a group has come that took `batches` global batches of
/// `rows` (batch size times world size) from `origin` (<= samples): where it goes on at another batch or
/// world size.
std::uint64_t position_after(std::uint64_t samples, std::uint64_t origin, std::uint64_t batches,
                             std::uint64_t rows);

std::string to_string(const Cursor& cursor);  ///< "epoch 3, origin 0, batch 17"

/// What the last, incomplete global batch of an epoch becomes. `len` is the same on every rank in each case.
enum class LastBatch : std::uint8_t {
  kShort,  ///< the remaining samples, split evenly over the ranks; at most w - 1 wrapped rows flagged not
           ///< valid
  kPad,    ///< filled up with wrapped rows flagged not valid
  kDrop,   ///< left out
};

}  // namespace headrace
