// Messages with file descriptors over a Unix SOCK_SEQPACKET socket (SCM_RIGHTS).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::ring {

inline constexpr std::size_t kMaxPacket = 4096;
inline constexpr std::size_t kMaxFds = 8;

struct Packet {
  std::string bytes;
  std::vector<UniqueFd> fds;  ///< close-on-exec
};

/// Sends one packet; never raises SIGPIPE. `socket` is a connected SOCK_SEQPACKET.
Result<void> send_packet(int socket, std::string_view bytes, std::span<const int> fds);
enum class Descriptors : std::uint8_t {
  kTake,
  kDrop  ///< the kernel closes them: for peers whose descriptors must not be used
};
/// Waits at most `timeout` for one packet. kTimeout; kServerLost at end of file, after all packets sent
/// before it; kBadMessage if the packet was truncated.
Result<Packet> receive_packet(int socket, std::chrono::milliseconds timeout,
                              Descriptors descriptors = Descriptors::kTake);

}  // namespace headrace::ring
