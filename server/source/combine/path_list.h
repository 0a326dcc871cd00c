// Text files that name samples by their relative paths, one per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

/// Reads one list per part and returns each part's indices in `whole`, ascending. kConfigInvalid with
/// file:line for the first ten paths that are unknown or were listed before (here or in another part's list).
Result<std::map<std::string, std::vector<std::uint64_t>>> read_path_lists(
    const Source& whole, const std::map<std::string, std::filesystem::path>& lists);

}  // namespace headrace::server::source
