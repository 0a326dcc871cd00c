// Decides which processes may connect to this process's Unix sockets, and how many unprocessed bytes a
// control connection may have.
//
// libzmq accepts connections and reads from them on a thread of its own. It keeps the parts of a message
// until the last one arrives, limits neither their number nor their bytes, and has no hook before any of
// this. So admission.cpp defines accept(2), accept4(2), recv(2) and close(2) for the whole process:
// - accept closes a connection at once (ECONNABORTED, which every caller must expect) if its peer is not
//   admitted, or if its descriptor is in the reserve (descriptors.h).
// - recv ends a control connection (ECONNRESET) that has more than kMostAhead unprocessed bytes, or whose
//   peer sets an identity (handshake.h).
// - close resets the counts of a descriptor: the next connection can get the same number. libzmq drops the
//   incomplete messages of a closed connection but keeps its complete ones. This code cannot tell them apart,
//   so all of them count towards the total until the control socket was found empty.
// Errors on which libzmq aborts (no descriptor, no memory) are reported as ECONNABORTED or ECONNRESET. Half
// of the descriptors are reserved for the server's user and root: other users cannot exhaust them.
//
// Thread safety: any thread may call any function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "clientlib/base/peer.h"
#include "clientlib/wire/protocol.h"

namespace headrace::server::session {

/// Several requests of the largest size; a client sends one and waits for its reply.
inline constexpr std::uint32_t kMostAhead = 4 * wire::kMaxFrame;
/// For all connections together. Once it is exceeded, each may send only a handshake ahead.
inline constexpr std::uint32_t kMostAheadInAll = 16 * kMostAhead;

/// Admits these users besides the server's own and root. Call it before any socket listens.
void set_admitted(AllowedUsers allowed);
/// The process at the other end of an accepted connection. kPermissionDenied: it is not admitted.
Result<Peer> admitted_peer(int socket);
/// The same for the log: "user 1000 (pid 17)".
std::string describe_peer(int socket);

/// Subtracts a received message of `bytes`, with ZMTP's framing, from the unprocessed bytes of connection
/// `fd`. If the sender has disconnected, a new connection may have the number `fd`, and can then send that
/// many bytes too many. The limit for all connections holds: it counts bytes of closed connections until
/// release_closed().
void count_taken(int fd, std::size_t bytes);

/// The unprocessed bytes of closed connections. Call it, receive until the control socket is empty, then pass
/// the number to release_closed(): by then every complete message among these bytes has been received.
std::int64_t closed_ahead();
void release_closed(std::int64_t bytes);

struct RefusalCounts {
  std::uint64_t users = 0;        ///< connections of users that are not admitted
  std::uint64_t floods = 0;       ///< connections that were closed because of kMostAhead
  std::uint64_t names = 0;        ///< connections of peers that set an identity: see handshake.h
  std::uint64_t descriptors = 0;  ///< connections for which only the reserve was left
};
RefusalCounts refusals();

}  // namespace headrace::server::session
