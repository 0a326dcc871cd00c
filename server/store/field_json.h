// A field's description as JSON: in a packed database, and before records from another program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "headrace/error.h"
#include "server/sample/sample.h"

namespace headrace::server::store {

/// JSON whose numbers are all whole: converting another one, such as 1e300, to an integer is undefined.
/// Throws a std::exception: the text is not such JSON.
nlohmann::json parse_description(std::string_view text);

nlohmann::json to_json(const sample::SourceField& field);

/// `name` and `content` are required; other members default to those of SourceField. kDatasetInvalid: unknown
/// names, invalid values; the caller adds to the message where they are.
Result<sample::SourceField> field_from_json(const nlohmann::json& value);

}  // namespace headrace::server::store
