// What the schema wanted where a value does not conform, in words.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// Whether `value` is of (one of) the node's `type`.
bool has_type(const nlohmann::json& node, const nlohmann::json& value);
/// "a whole number from 1 to 64", "one of short, pad, drop", ...
std::string expected(const nlohmann::json& node);
/// A value as a message shows it: short, and text in quotes.
std::string shown(const nlohmann::json& value);

/// Adds what is wrong with the value at `at` itself; nothing if that conforms (then what is below it does
/// not).
void explain(const Document& document, const Pointer& at, std::vector<Problem>& problems);

}  // namespace headrace::server::config
