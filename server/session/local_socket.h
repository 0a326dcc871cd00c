// Sockets in the server's directory.
#pragma once

#include <filesystem>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::session {

/// A listening, non-blocking SOCK_SEQPACKET of mode 0600. kEnvironment, also if the path is too long.
Result<ring::UniqueFd> listen_on(const std::filesystem::path& path, int backlog);

}  // namespace headrace::server::session
