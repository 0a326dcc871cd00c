// The JSON Schema: validates a document and describes in words what the schema expects.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// The parsed schema_text().
const nlohmann::json& schema();

/// The choices of anyOf or oneOf; null: there are none.
const nlohmann::json* branches(const nlohmann::json& node);
/// Whether `value` has the node's `type`, or one of its types.
bool has_type(const nlohmann::json& node, const nlohmann::json& value);
/// Follows $ref; of anyOf and oneOf selects the branch that `value` means: by its `type` key if the branches
/// have one, else by its type of value. Returns the node itself if that does not decide.
const nlohmann::json& resolve(const nlohmann::json& node, const nlohmann::json& value);
/// The schema of `value`'s member or item; null if it has none.
const nlohmann::json* child(const nlohmann::json& node, const nlohmann::json& value, const std::string& name);
/// The keys that a map may have by the schema, over all branches that are maps.
std::vector<std::string> known_keys(const nlohmann::json& node);

/// Reports what does not conform, each in words, with its place and the nearest valid name.
void validate(Document& document);

}  // namespace headrace::server::config
