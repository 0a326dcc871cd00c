// What a source's caches and its way of reading must hold, beyond the schema.
#pragma once

#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// Adds to `problems` what is wrong with `cache` and `io` of the source at `source`.
void check_storage(const Document& document, const Pointer& source, std::vector<Problem>& problems);

}  // namespace headrace::server::config
