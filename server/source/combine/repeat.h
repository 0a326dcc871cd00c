// A source whose samples occur several times in an epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/described/description.h"
#include "server/source/member.h"

namespace headrace::server::source {

struct RepeatOptions {
  std::vector<SourceRef> of;  ///< exactly one
  std::uint64_t times = 1;

  static described::Description<RepeatOptions> description();
};

/// All samples of `of`, `times` times over, renumbered: sample i is sample i % of->size() of `of`, named
/// "<name>#<copy>" with copies from 0. Takes no memory. kConfigInvalid: 0 times, or more than kMostComposed
/// samples (member.h).
Result<std::shared_ptr<const Source>> repeat(const std::shared_ptr<const Source>& of, std::uint64_t times);

}  // namespace headrace::server::source
