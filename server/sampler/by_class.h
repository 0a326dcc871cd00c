// Samplers that go by class. Substitutes are of the class of the bad sample.
#pragma once

#include <cstdint>

#include "server/sampler/class_index.h"
#include "server/sampler/sampler.h"

namespace headrace::server::sampler {

/// Every class equally often. With C classes, positions r*C .. r*C + C - 1 have each class once, in an order
/// of their own; so any C*m of them that begin at a multiple of C have each m times. Within an epoch a
/// class's samples all come once, in an order of the epoch's, before any comes again. `samples` >= 1:
/// positions per epoch.
SamplerPtr make_balanced(ClassIndex classes, std::uint64_t samples, std::uint64_t seed);

struct PkOptions {
  std::uint64_t classes = 0;  ///< P: of a group, 1 to the index's
  std::uint64_t samples = 0;  ///< K: of each of them, at least 1
  std::uint64_t groups = 1;   ///< per epoch, at least 1
};

/// Groups of P classes with K samples each, for losses that compare (metric learning). Positions g*P*K .. +
/// P*K - 1 are group g, class after class. The classes of a group are distinct; floor(C/P) groups in a row,
/// from a multiple of that number on, have no class twice (all classes once if P divides C; else those left
/// out differ from row to row). The K samples of a class are distinct too, and so are those of floor(n/K)
/// rows in a row, for a class of n samples; one with fewer than K has each of them floor(K/n) or ceil(K/n)
/// times.
SamplerPtr make_pk(ClassIndex classes, const PkOptions& options, std::uint64_t seed);

}  // namespace headrace::server::sampler
