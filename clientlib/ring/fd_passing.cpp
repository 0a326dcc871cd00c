#include "clientlib/ring/fd_passing.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace headrace::ring {
namespace {

using Clock = std::chrono::steady_clock;

bool peer_is_gone(int error) {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

Result<void> wait_readable(int socket, Clock::time_point deadline, std::chrono::milliseconds timeout) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR)
      return fail(ErrorCode::kInternal, fmt::format("waiting for a packet: poll: {}", std::strerror(errno)));
    if (ready == 0 && left <= 0)
      return fail(ErrorCode::kTimeout, fmt::format("no packet arrived within {} ms", timeout.count()));
  }
}

}  // namespace

Result<void> send_packet(int socket, std::string_view bytes, std::span<const int> fds) {
  if (bytes.empty() || bytes.size() > kMaxPacket || fds.size() > kMaxFds)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a packet has 1 to {} bytes and at most {} descriptors, found {} and {}",
                            kMaxPacket, kMaxFds, bytes.size(), fds.size()));
  iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent = -1;
  do sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes.size())) return {};
  if (peer_is_gone(errno)) return fail(ErrorCode::kServerLost, "the other end closed its socket");
  if (errno == EAGAIN)
    return fail(ErrorCode::kTimeout, "the other end does not read its packets: the socket is full");
  return fail(ErrorCode::kInternal, fmt::format("sending a packet: sendmsg: {}", std::strerror(errno)));
}

Result<Packet> receive_packet(int socket, std::chrono::milliseconds timeout, Descriptors descriptors) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    if (auto readable = wait_readable(socket, deadline, timeout); !readable) return fail(readable.error());
    Packet packet;
    packet.bytes.resize(kMaxPacket);
    packet.fds.reserve(kMaxFds);  // before they arrive: none must be lost for lack of memory
    iovec part{.iov_base = packet.bytes.data(), .iov_len = packet.bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const bool take = descriptors == Descriptors::kTake;
    if (take) message.msg_control = control;
    if (take) message.msg_controllen = sizeof control;
    const ssize_t received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    // A peer that closes its socket with unread packets resets the connection. Linux reports that once,
    // before it delivers the peer's own packets and then the end of file.
    if (received < 0 && (errno == EINTR || errno == EAGAIN || errno == ECONNRESET)) continue;
    if (received == 0 || (received < 0 && peer_is_gone(errno)))
      return fail(ErrorCode::kServerLost, "the other end closed its socket");
    if (received < 0)
      return fail(ErrorCode::kInternal, fmt::format("receiving a packet: recvmsg: {}", std::strerror(errno)));
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        packet.fds.emplace_back(fd);
      }
    }
    if ((message.msg_flags & (MSG_TRUNC | (take ? MSG_CTRUNC : 0))) != 0)
      return fail(ErrorCode::kBadMessage,
                  fmt::format("a packet exceeds {} bytes or {} descriptors", kMaxPacket, kMaxFds));
    packet.bytes.resize(static_cast<std::size_t>(received));
    return packet;
  }
}

}  // namespace headrace::ring
