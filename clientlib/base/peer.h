// The process at the other end of a Unix socket, as the kernel reports it, and whether it is trusted. Thread
// safety: all functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/error.h"

namespace headrace {

/// Users and groups that are trusted besides this process's own user and root.
struct AllowedUsers {
  std::vector<std::uint32_t> uids;
  std::vector<std::uint32_t> gids;  ///< matched with a peer's primary and supplementary groups

  [[nodiscard]] bool empty() const { return uids.empty() && gids.empty(); }
};

struct Peer {
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
};

/// Whether the user is this process's own, root, or one of `allowed`.
bool is_trusted_user(std::uint32_t uid, const std::vector<std::uint32_t>& allowed = {});

/// The process at the other end of a connected socket: for a server the one that called connect(), for a
/// client the one that called listen(). kPermissionDenied, which names its user, if it is not trusted.
Result<Peer> check_peer(int socket, const AllowedUsers& allowed = {});

/// Name of the libzmq message property that holds the sender. Over ipc its value is ADDRESS:UID:GID:PID,
/// recorded when the connection was made.
inline constexpr const char* kPeerAddress = "Peer-Address";
/// The UID in that value; nullopt if it is null or malformed.
std::optional<std::uint32_t> uid_of_peer_address(const char* address);

}  // namespace headrace
