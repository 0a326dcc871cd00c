// A stream's transforms and output: from the configuration's JSON to the plan, and back to a canonical form.
#pragma once

#include <nlohmann/json.hpp>

#include "server/transform/stream_plan.h"

namespace headrace::server::config {

/// From a stream's map that conforms to the schema.
transform::StreamPlan read_plan(const nlohmann::json& stream);

/// What of a plan changes samples, with all defaults filled in: each transform with all of its arguments.
nlohmann::json canonical(const transform::StreamPlan& plan);

}  // namespace headrace::server::config
