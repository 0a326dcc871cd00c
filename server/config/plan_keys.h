// The keys of a stream that define what is done to its images.
#pragma once

#include <vector>

#include "server/described/described.h"
#include "server/transform/stream_plan.h"

namespace headrace::server::config {

std::vector<described::Key<transform::StreamPlan>> plan_keys();

/// Checks across the keys of a plan: each field's chain must compile for images of one size. `map`: the
/// stream, at `reading`; of invalid `transforms`, only those before the first invalid one.
void check_plan(const transform::StreamPlan& plan, const described::Json& map,
                const described::Reading& reading);

/// Whether values become fractions, which need a float type.
bool normalizes(const transform::StreamPlan& plan);

}  // namespace headrace::server::config
