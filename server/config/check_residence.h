// What a schema cannot say of a stream whose set is to live on a GPU.
#pragma once

#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// `at`: of the stream, which conforms to the schema. Sizes are asked for when its source is open.
void check_residence(const Document& document, const Pointer& at, const StreamConfig& stream,
                     std::vector<Problem>& problems);

}  // namespace headrace::server::config
