// A server's address, and the users that may run the server.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "clientlib/base/peer.h"
#include "headrace/error.h"

namespace headrace::client {

/// `allow_uids`: users that may run the server besides this process's own user and root.
struct Address {
  std::string directory;  ///< absolute
  std::vector<std::uint32_t> allow_uids;
};

/// If `address` is empty, HEADRACE_ADDRESS, else default_directory(). HEADRACE_ALLOW_UIDS ("1000" or
/// "1000,1001") adds to `allow_uids`. kInvalidArgument: a scheme other than ipc, a path too long for a Unix
/// socket, or a malformed HEADRACE_ALLOW_UIDS.
Result<Address> resolve_address(std::string_view address, std::vector<std::uint32_t> allow_uids = {});

/// Checks that only trusted users can create sockets there. kPermissionDenied: the directory is a symbolic
/// link, another user's, or writable by group or others. A missing directory is no error.
Result<void> check_directory(const Address& server);

/// The process that listens at the other end of `socket`, which is connected to `path`. kPermissionDenied:
/// its user is not trusted.
Result<Peer> check_server(int socket, const std::string& path, const Address& server);
/// The kPermissionDenied error for the server at `path`; `whose` says which user runs it.
tl::unexpected<Error> not_trusted(const std::string& path, const std::string& whose);

}  // namespace headrace::client
