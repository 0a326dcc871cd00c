#include "clientlib/client/attachment.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "clientlib/ring/fd_passing.h"
#include "clientlib/wire/protocol.h"

namespace headrace::client {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};

tl::unexpected<Error> interrupted() {
  return fail(ErrorCode::kTimeout, "interrupted while attaching");
}

/// Connects to a socket. connect() blocks if the backlog is full, as a stopped server's may be, so it is
/// retried in short steps.
Result<ring::UniqueFd> connect_to(const std::string& path, const Deadline& deadline,
                                  const Interrupt& interrupt) {
  ring::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return fail(ErrorCode::kEnvironment, fmt::format("attach socket: {}", std::strerror(errno)));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const timeval step{.tv_sec = 0, .tv_usec = std::chrono::microseconds(kPollInterval).count()};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &step, sizeof step);
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const bool waits = errno == EINTR || errno == EAGAIN;
    if (!waits || deadline.over())
      return fail(ErrorCode::kServerUnreachable,
                  fmt::format("attach: connecting to {}: {}", path,
                              waits ? "the server does not accept connections" : std::strerror(errno)));
    if (interrupt && interrupt()) return interrupted();
  }
  return socket;
}

/// Parses the server's refusal: "error <CODE> <message>".
tl::unexpected<Error> refusal(std::string_view answer) {
  if (!answer.starts_with("error "))
    return fail(ErrorCode::kBadMessage,
                fmt::format("attach: the server answered '{:.40}', expected 'ok' or 'error'", answer));
  answer.remove_prefix(6);
  const auto space = answer.find(' ');
  const auto message = space == std::string_view::npos ? std::string_view{} : answer.substr(space + 1);
  return fail(error_code_from_name(answer.substr(0, space)), std::string(message));
}

}  // namespace

Attachment::~Attachment() {
  // A child shares the connection: shutting it down there would end the parent's session.
  if (fork.forked()) return;
  (void)ring::send_packet(socket.get(), wire::kAttachGoodbye, {});  // only for the server's log
  ::shutdown(socket.get(), SHUT_RDWR);
}

Result<Attached> attach(const Address& server, const std::string& token, ring::RingReader::Slots slots,
                        const Deadline& deadline, const Interrupt& interrupt) {
  const std::string path = server.directory + "/" + wire::kAttachSocket;
  auto socket = connect_to(path, deadline, interrupt);
  if (!socket) return fail(socket.error());
  if (auto trusted = check_server(socket->get(), path, server); !trusted) return fail(trusted.error());
  const ring::UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  const int fd = self.get();
  const auto fds = self ? std::span<const int>(&fd, 1) : std::span<const int>();
  if (auto sent = ring::send_packet(socket->get(), std::string(wire::kAttachHello) + token, fds); !sent)
    return fail(sent.error());
  const auto receive = [&] {
    return ring::receive_packet(socket->get(), std::min(kPollInterval, deadline.left()));
  };
  auto packet = receive();
  for (; !packet && packet.error().code == ErrorCode::kTimeout && !deadline.over(); packet = receive())
    if (interrupt && interrupt()) return interrupted();
  if (!packet && packet.error().code == ErrorCode::kTimeout)
    return fail(
        ErrorCode::kServerUnreachable,
        fmt::format(
            "attach: the server in {} accepted the connection, but sent no descriptors within {:.1f} s",
            server.directory, deadline.seconds_spent()));
  if (!packet) return fail(packet.error());
  if (!packet->bytes.starts_with("ok ")) return refusal(packet->bytes);
  auto reply = wire::parse<wire::AttachReply>(
      nlohmann::json::parse(packet->bytes.substr(3), nullptr, /*allow_exceptions=*/false));
  if (!reply) return fail(reply.error());
  if (packet->fds.size() != 4)
    return fail(ErrorCode::kBadMessage,
                fmt::format("attach: the server sent {} descriptors, expected 4", packet->fds.size()));
  auto reader = ring::RingReader::open({.data = std::move(packet->fds[0]),
                                        .control = std::move(packet->fds[1]),
                                        .lease = std::move(packet->fds[2]),
                                        .doorbell = std::move(packet->fds[3])},
                                       reply->lane, slots);
  if (!reader) return fail(reader.error());
  auto attachment = std::make_shared<Attachment>(std::move(*socket), std::move(*reader));
  return Attached{std::move(*reply), std::move(attachment)};
}

}  // namespace headrace::client
