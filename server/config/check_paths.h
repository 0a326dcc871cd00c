// Paths as a shell would take them.
#pragma once

#include <filesystem>
#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// Refuses a path with `~` or `$NAME` that is not there as it is written: nobody expands it, and what is made
/// in its place (a disk cache, a server's directory) would lie in a folder called `~`.
void check_paths(const Document& document, const std::filesystem::path& folder,
                 std::vector<Problem>& problems);

}  // namespace headrace::server::config
