// Where a server is.
#pragma once

#include <string>
#include <string_view>

#include "headrace/error.h"

namespace headrace::client {

/// The server's directory, absolute. Empty `address`: HEADRACE_ADDRESS, then default_directory().
/// kInvalidArgument: a scheme other than ipc, or a path too long for a Unix socket.
Result<std::string> resolve_directory(std::string_view address);

}  // namespace headrace::client
