// Sockets in the server's directory.
#pragma once

#include <filesystem>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::session {

/// A listening SOCK_SEQPACKET that does not block. kEnvironment, also if the path is too long.
Result<ring::UniqueFd> listen_on(const std::filesystem::path& path, int backlog);

/// Only the server's own user and root may connect: kPermissionDenied. Gives the peer's process.
Result<std::int64_t> check_peer(int socket);

}  // namespace headrace::server::session
