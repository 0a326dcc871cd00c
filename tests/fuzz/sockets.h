// Local sockets of a server, for targets that are its peer.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "clientlib/ring/fd_passing.h"
#include "clientlib/ring/futex.h"
#include "server/session/sessions.h"
#include "tests/fuzz/fuzz.h"
#include "tests/temp_folder.h"

namespace headrace::fuzz {

inline UniqueFd connect_to(const std::filesystem::path& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  int connected = -1;
  do connected = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  while (connected != 0 && errno == EINTR);
  require(connected == 0, "a local socket accepts connections");
  return socket;
}

/// Sends any packet, unlike ring::send_packet(): an empty one, or one with too many descriptors. Errors are
/// ignored, because the server may have disconnected.
inline void send_any(const UniqueFd& socket, std::string_view packet, std::span<const int> fds = {}) {
  constexpr std::size_t kMost = 16;
  iovec part{.iov_base = const_cast<char*>(packet.data()), .iov_len = packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMost)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  require(fds.size() <= kMost, "a packet has few descriptors");
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
}

/// The attach socket of an engine, served by the calling thread.
class AttachSocket {
 public:
  explicit AttachSocket(server::exec::Engine& engine) : engine_(engine), sessions_(engine) {
    require(sessions_.listen(path()).has_value(), "the attach socket listens");
  }
  [[nodiscard]] server::session::Sessions& sessions() { return sessions_; }
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "attach.sock"; }
  /// One round of the server's loop.
  void serve() {
    std::vector<pollfd> polls;
    sessions_.add_polls(polls);
    ::poll(polls.data(), polls.size(), 0);
    sessions_.handle(polls, ring::monotonic_ns());
  }
  /// Serves until `peer` gets a packet. kServerLost: it is disconnected instead.
  Result<ring::Packet> answer(const UniqueFd& peer) {
    for (int i = 0; i < 1000; ++i) {
      serve();
      auto packet = ring::receive_packet(peer.get(), std::chrono::milliseconds(0));
      if (packet || packet.error().code != ErrorCode::kTimeout) return packet;
    }
    require(false, "a peer is answered or disconnected");
    return {};
  }
  /// Serves after peers have disconnected, until no more than `left` are attached; forgets tokens and groups.
  void forget(std::size_t left) {
    for (int i = 0; i < 1000 && sessions_.attached() > left; ++i) serve();
    require(sessions_.attached() == left, "a session ends with its connection");
    const std::uint64_t later = ring::monotonic_ns() + 3'600'000'000'000;
    sessions_.tick(later, std::uint64_t{1} << 62);
    for (std::size_t i = 0; i < engine_.stream_count(); ++i)
      engine_.with(i, [&](server::exec::Stream& stream) {
        stream.beat(later, 1);
        return 0;
      });
  }

 private:
  server::exec::Engine& engine_;
  TempFolder folder_;
  server::session::Sessions sessions_;
};

}  // namespace headrace::fuzz
