// Sources whose paths are URLs: which they are, and what holds for them beyond the schema.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/config/document.h"
#include "server/config/sources.h"

namespace headrace::server::config {

/// How the URLs of a source are read; none: it has none.
std::optional<NetworkConfig> read_network(const nlohmann::json& source, const std::filesystem::path& folder);

/// Refuses a list of samples that is a URL: such lists are read from files.
void check_list(const Document& document, const Pointer& at, std::vector<Problem>& problems);

/// Adds to `problems` what is wrong with the URLs of the source at `source`, and with its keys about them. No
/// message has more of a URL than remote::shown().
void check_network(const Document& document, const Pointer& source, std::vector<Problem>& problems);

}  // namespace headrace::server::config
