// Checks of a stream with `residence: gpu` that a schema cannot express.
#pragma once

#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// `at`: the stream, which conforms to the schema. Image sizes are checked later, when the source is open.
void check_residence(const Document& document, const Pointer& at, const StreamConfig& stream,
                     std::vector<Problem>& problems);

}  // namespace headrace::server::config
