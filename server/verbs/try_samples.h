// Makes samples of a stream as a server would, to find those that are bad.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/exec/sample_maker.h"

namespace headrace::server::verbs {

struct TriedSamples {
  std::uint64_t tried = 0, bad = 0;
  std::uint64_t distinct = 0;      ///< of the bad ones: an epoch may have a sample several times
  std::vector<std::string> first;  ///< what is wrong with the first distinct bad ones, at most kMostNamed
};
inline constexpr std::size_t kMostNamed = 10;

/// Makes samples of the first epoch: a few, spread over it, or all with a progress bar. An error of the
/// source that is not a bad sample ends it.
Result<TriedSamples> try_samples(const std::string& stream, const exec::SampleMaker& maker, bool all,
                                 unsigned threads);

}  // namespace headrace::server::verbs
