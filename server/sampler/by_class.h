// Samplers by class. A replacement has the class of the bad sample.
#pragma once

#include <cstdint>

#include "server/sampler/class_index.h"
#include "server/sampler/sampler.h"

namespace headrace::server::sampler {

/// Every class equally often. With C classes, positions r*C .. r*C + C - 1 have each class once, in an order
/// of their own; so any C*m positions that begin at a multiple of C have each class m times. Within an epoch,
/// all samples of a class occur once, in the epoch's order, before any occurs again. `samples` >= 1:
/// positions per epoch.
SamplerPtr make_balanced(ClassIndex classes, std::uint64_t samples, std::uint64_t seed);

struct PkOptions {
  std::uint64_t classes = 0;  ///< P: per group, from 1 to the number in the index
  std::uint64_t samples = 0;  ///< K: per class, at least 1
  std::uint64_t groups = 1;   ///< per epoch, at least 1
};

/// Groups of P classes with K samples each, for losses that compare samples (metric learning). Positions
/// g*P*K .. + P*K - 1 are group g, class after class. The classes of a group are distinct; floor(C/P)
/// consecutive groups, from a multiple of that number on, are a row, in which no class occurs twice (all
/// classes occur once if P divides C; otherwise the omitted ones differ from row to row). The K samples of a
/// class are distinct, and so are those of floor(n/K) consecutive rows, for a class of n samples; a class
/// with fewer than K has each sample floor(K/n) or ceil(K/n) times.
SamplerPtr make_pk(ClassIndex classes, const PkOptions& options, std::uint64_t seed);

}  // namespace headrace::server::sampler
