// A stream's transforms and output: from the configuration's JSON to the plan, and back to a canonical form.
#pragma once

#include <nlohmann/json.hpp>

#include "server/transform/plan.h"

namespace headrace::server::config {

/// From a stream's map that conforms to the schema.
transform::PlanConfig read_plan(const nlohmann::json& stream);

/// Each transform with all of its arguments, under its name.
nlohmann::json canonical(const transform::Transform& transform);

}  // namespace headrace::server::config
