// From a document that conforms to the schema to structs, and what a schema cannot say.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

ServerConfig read_server(const nlohmann::json& server, const std::filesystem::path& folder,
                         const Environment& environment);
StreamConfig read_stream(const nlohmann::json& stream, const std::filesystem::path& folder,
                         const ServerConfig& server);

/// Reads what has no problem yet and checks it; `problems` gets the rest. The result is only whole if none
/// came.
Config read_and_check(const Document& document, const std::filesystem::path& folder,
                      const Environment& environment, std::vector<Problem>& problems);

}  // namespace headrace::server::config
