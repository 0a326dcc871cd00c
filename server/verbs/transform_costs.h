// Measures what each transform of a stream costs: it runs the stream without that transform.
#pragma once

#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/config/config.h"

namespace headrace::server::verbs {

struct TransformCosts {
  struct One {
    std::string name;
    double us = 0;
  };
  double all_us = 0;         ///< CPU time per sample of the whole stream
  std::vector<One> dearest;  ///< what is saved without a transform, the largest first
};

/// Runs the configuration's only stream once as it is and once without each transform, `seconds` each. Skips
/// transforms that the stream needs, for example because they make all images the same size. The rules are
/// those of measure().
Result<TransformCosts> transform_costs(const config::Config& config, double seconds);

}  // namespace headrace::server::verbs
