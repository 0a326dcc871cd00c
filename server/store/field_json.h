// A field's description as JSON: in a packed database, and in front of records from another program.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "headrace/error.h"
#include "server/sample/sample.h"

namespace headrace::server::store {

nlohmann::json to_json(const sample::SourceField& field);

/// `name` and `content` must be there; what else is not has the default of SourceField. kDatasetInvalid:
/// unknown names, values that make no sense; the message is for somebody who knows where it stands.
Result<sample::SourceField> field_from_json(const nlohmann::json& value);

}  // namespace headrace::server::store
