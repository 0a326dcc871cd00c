// A field's description as JSON: in a packed database, and before records from another program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "headrace/error.h"
#include "server/sample/sample.h"

namespace headrace::server::store {

/// Parses JSON in which every number is a 64-bit integer. Others, such as 1.5 or 1e300, are refused, because
/// converting them to an integer would be undefined. Throws std::invalid_argument for these, and
/// json::parse_error for other text.
nlohmann::json parse_description(std::string_view text);

nlohmann::json to_json(const sample::SourceField& field);

/// `name` and `content` are required; other members default to those of SourceField. kDatasetInvalid: unknown
/// names, invalid values; the caller adds to the message where they are.
Result<sample::SourceField> field_from_json(const nlohmann::json& value);

}  // namespace headrace::server::store
