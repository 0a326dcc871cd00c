// Which processes get a connection to a Unix socket of this process, and how much a connection to the control
// socket may send ahead of what was taken from it.
//
// libzmq accepts connections and reads from them on a thread of its own. It keeps the parts of a message
// until the last one has come, bounds neither their number nor their bytes, and has no hook before any of
// this. So admission.cpp defines accept(2), accept4(2), recv(2) and close(2) for the whole process:
// - accept closes a connection at once (ECONNABORTED, which every caller must expect) if its peer is not
//   admitted, or if its descriptor lies in the reserve (descriptors.h).
// - recv ends a control connection (ECONNRESET) whose bytes that nobody took exceed kMostAhead, or whose peer
//   names itself (handshake.h).
// Errors after which libzmq would end the process (no descriptor, no memory) become those two.
// Half of the descriptors are reserved for the server's user and root: other users cannot use them up.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clientlib/base/peer.h"
#include "clientlib/wire/protocol.h"

namespace headrace::server::session {

/// Several requests of the largest size; a client sends one, and waits for its answer.
inline constexpr std::uint32_t kMostAhead = 4 * wire::kMaxFrame;
/// For all connections together. Once it is exceeded, each may send no more than a handshake ahead.
inline constexpr std::uint32_t kMostAheadInAll = 16 * kMostAhead;

/// Admits these users besides the server's own and root. Called before anything listens.
void set_admitted(AllowedUsers allowed);
/// The process behind an accepted connection. kPermissionDenied: it is not admitted.
Result<Peer> admitted_peer(int socket);

/// A message of so many bytes, ZMTP's framing included, was taken from the connection `fd`.
void count_taken(int fd, std::size_t bytes);

struct Refusals {
  std::uint64_t users = 0;        ///< connections of users that are not admitted
  std::uint64_t floods = 0;       ///< connections that were ended by kMostAhead
  std::uint64_t names = 0;        ///< connections of peers that named themselves: see handshake.h
  std::uint64_t descriptors = 0;  ///< connections for which only the reserve was left
};
Refusals refusals();

}  // namespace headrace::server::session
