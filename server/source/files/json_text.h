// JSON that a dataset contains: any bytes, and nested as deeply as somebody likes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace headrace::server::source {

/// Values of samples have at most seven dimensions. Code that walks through a value may recurse.
inline constexpr int kMostNesting = 64;

/// Discarded (json::is_discarded) if the text is not JSON, or is nested more deeply.
nlohmann::json parse_json(std::string_view text);

/// For messages: the value as JSON, of which other bytes than UTF-8 are replaced and the end of a long text
/// is cut.
std::string shown_json(const nlohmann::json& value);

}  // namespace headrace::server::source
