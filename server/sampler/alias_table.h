// Draws by weight in O(1): Walker's alias method (1977, "An efficient method for generating discrete random
// variables with general distributions"), built by Vose's algorithm (1991, "A linear algorithm for generating
// random numbers with a given distribution") in integers: rounding never decides a draw, and a sample of
// weight zero is never drawn.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "server/sampler/philox.h"

namespace headrace::server::sampler {

/// Why a number cannot be a weight: "is negative", "is not a number", "is infinite". Empty: it can.
std::string_view fault_of_weight(double weight);

/// 8 bytes per weight. Thread safety: immutable.
class AliasTable {
 public:
  /// kConfigInvalid: no weights or more than kMostSamples, one that fault_of_weight() refuses, or all of them
  /// zero. Each is drawn with its share of the sum, rounded down to a multiple of 2^-32 / (their count); the
  /// largest gets the rest.
  static Result<AliasTable> make(std::span<const double> weights);

  [[nodiscard]] std::uint32_t draw(Draws& draws) const;
  [[nodiscard]] std::uint64_t size() const { return columns_.size(); }

 private:
  /// Of 2^32 draws for this column, `own` are its own, the others its alias's. A column without another's
  /// share is its own alias.
  struct Column {
    std::uint32_t own = 0;
    std::uint32_t alias = 0;
  };
  explicit AliasTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  std::vector<Column> columns_;
};

}  // namespace headrace::server::sampler
