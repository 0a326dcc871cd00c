// A source whose samples come several times in an epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/described/description.h"
#include "server/source/member.h"

namespace headrace::server::source {

struct RepeatOptions {
  std::vector<SourceRef> of;  ///< one
  std::uint64_t times = 1;

  static described::Description<RepeatOptions> description();
};

/// `times` times the samples of `of`, all of them before any comes again, numbered anew: sample i is sample
/// i % of->size() of `of`, called "<name>#<copy>", copies from 0. No memory of its own. kConfigInvalid: 0
/// times, or more than kMostComposed samples (member.h).
Result<std::shared_ptr<const Source>> repeat(const std::shared_ptr<const Source>& of, std::uint64_t times);

}  // namespace headrace::server::source
