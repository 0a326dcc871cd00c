// The order in which an epoch visits the samples, and the positions that a rank's batch covers. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "clientlib/base/epoch_plan.h"
#include "server/sampler/permute.h"
#include "server/sampler/philox.h"

namespace headrace::server::sampler {

/// A keyed permutation of [0, n): clientlib/draws/permutation.h, which devices also compute.
class Permutation {
 public:
  /// n >= 1; the epoch's order of samples.
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);
  /// n >= 1; other draws give another permutation.
  Permutation(std::uint64_t n, Draws keys);
  [[nodiscard]] std::uint64_t operator()(std::uint64_t position) const;  ///< position < n
  /// The same of many positions, in place.
  void apply(std::span<std::uint64_t> positions) const;

 private:
  draws::Feistel feistel_;
};

using headrace::BatchRows;
using headrace::EpochPlan;

/// Why the epochs of such a group have no batch, with a remedy; `last` is drop.
std::string no_batch(std::uint64_t n, std::uint32_t batch_size, std::uint32_t world_size);

}  // namespace headrace::server::sampler
