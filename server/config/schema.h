// The JSON Schema: checking a document with it, and saying in words what it wanted.
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
/// Whether `value` is of (one of) the node's `type`.
bool has_type(const nlohmann::json& node, const nlohmann::json& value);
/// Follows $ref; of anyOf and oneOf takes the branch that `value` means: by its `type` key where the branches
/// have one, else by its kind of value. Stays where that does not decide.
const nlohmann::json& resolve(const nlohmann::json& node, const nlohmann::json& value);
/// The schema of `value`'s member or item; null if it has none.
const nlohmann::json* child(const nlohmann::json& node, const nlohmann::json& value, const std::string& name);
/// Keys that a map may have by the schema, over all branches that are maps.
std::vector<std::string> known_keys(const nlohmann::json& node);

/// Finds what does not conform, each in words, with its place and the nearest right name.
void validate(Document& document);

}  // namespace headrace::server::config
