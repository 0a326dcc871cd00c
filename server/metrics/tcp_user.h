// The user behind a TCP connection from this machine, as the kernel reports it. Other machines' users are
// unknown.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace headrace::server::metrics {

/// The user who opened the socket with the local address `peer`, port `peer_port`, that is connected to our
/// `port`, from /proc/net/tcp and tcp6. nullopt: this network namespace has no such socket, or several of
/// different users.
std::optional<uid_t> tcp_user(const std::string& peer, std::uint16_t peer_port, std::uint16_t port);

}  // namespace headrace::server::metrics
