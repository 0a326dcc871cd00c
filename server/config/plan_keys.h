// The keys of a stream that say what happens to its images.
#pragma once

#include <vector>

#include "server/described/described.h"
#include "server/transform/stream_plan.h"

namespace headrace::server::config {

std::vector<described::Key<transform::StreamPlan>> plan_keys();

}  // namespace headrace::server::config
