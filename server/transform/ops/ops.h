// The available transforms. To add one, write its file here and its line in ops.cpp; and a kernel, if no
// PixelOp does what it needs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "server/described/reading.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// The transform of that name. `arguments` must conform to the configuration's schema; other faults in them
/// are added to `reading`. Throws std::out_of_range for an unknown name.
Transform make_op(const std::string& name, const nlohmann::json& arguments,
                  const described::Reading& reading = {});
Transform make_op(const std::string& name);

/// The argument that the transform requires, if it is one: `random_resized_crop: 224` gives its value. Empty:
/// none or several, or there is no such transform.
std::string only_required_argument(const std::string& name);

/// In the order of the schema.
std::vector<std::string> op_names();

/// The schema of one item of a chain: only a name, if no argument is required, or a map from a name to
/// arguments. `common`: keys that every map of arguments may have as well.
nlohmann::ordered_json chain_item_schema(const nlohmann::ordered_json& common);

}  // namespace headrace::server::transform
