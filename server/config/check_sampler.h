// What a schema cannot say of a stream's sampler.
#pragma once

#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// `at`: of the stream, which conforms to the schema.
void check_sampler(const Document& document, const Pointer& at, const StreamConfig& stream,
                   std::vector<Problem>& problems);

}  // namespace headrace::server::config
