// The transforms that there are. To add one: its file here, and its line in ops.cpp; and a kernel, if no
// PixelOp does what it needs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "server/transform/plan.h"

namespace headrace::server::transform {

/// A transform of that name. `arguments` conform to the schema of the configuration. Throws std::out_of_range
/// for a name that is none.
Transform make_op(const std::string& name, const nlohmann::json& arguments);
Transform make_op(const std::string& name);

/// The schema of one item of a chain: a name alone, where no argument is required, or a map from a name to
/// arguments. `common`: keys that every map of arguments may have, too.
nlohmann::ordered_json chain_item_schema(const nlohmann::ordered_json& common);

}  // namespace headrace::server::transform
