#include "clientlib/client/exchange.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "clientlib/ring/layout.h"
#include "clientlib/ring/unique_fd.h"
#include "clientlib/wire/interrupted.h"
#include "headrace/version.h"

namespace headrace::client {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSlice{50};

/// A problem with a server's socket. `what` is empty if a trusted server listens.
struct SocketProblem {
  std::string what;
  bool waiting_helps = true;
  ErrorCode code = ErrorCode::kServerUnreachable;
  [[nodiscard]] bool none() const { return what.empty(); }
};

/// Why there is no descriptor: errno says it.
std::string no_descriptors() {
  return fmt::format(
      "no descriptors are left to talk to the server: {}; close files, or raise the limit "
      "(ulimit -n)",
      std::strerror(errno));
}

/// libzmq aborts the process if it gets no descriptor.
Result<void> check_descriptors() {
  constexpr std::size_t kNeeded = 24;  // more than a context with three sockets opens
  std::array<ring::UniqueFd, kNeeded> probes;
  for (ring::UniqueFd& probe : probes) {
    probe = ring::UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!probe) return fail(ErrorCode::kEnvironment, no_descriptors());
  }
  return {};
}

/// Whether the server closed the connection, as it does at once if it does not admit this user.
bool is_closed(int socket) {
  pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
  if (::poll(&entry, 1, static_cast<int>(kSlice.count())) != 1) return false;
  char byte = 0;
  return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

SocketProblem check_socket(const std::string& path, const Address& server) {
  const ring::UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return {no_descriptors(), false, ErrorCode::kEnvironment};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const auto peer = check_server(probe.get(), path, server);
    if (!peer) return {peer.error().message, false, peer.error().code};
    const auto own = ::geteuid();
    if (own == 0 || own == peer->uid || !is_closed(probe.get())) return {};
    return {fmt::format(
                "{}: the server of user {} closed the connection: it does not admit user {} (ask its "
                "owner to list that uid in server.allow.uids), or it has no free descriptors (see its log)",
                path, peer->uid, own),
            false, ErrorCode::kPermissionDenied};
  }
  switch (errno) {
    case EAGAIN:
      return {};
    case ENOENT:
      return {fmt::format("{} does not exist: no server runs in this directory", path)};
    case ECONNREFUSED:
      return {fmt::format("{} exists, but no server listens on it: it has exited", path)};
    case EACCES:
      return {
          fmt::format("{}: {}: run as the server's user, have your uid listed in its server.allow.uids, or "
                      "start your own server",
                      path, std::strerror(EACCES)),
          false};
    case ENOTDIR:
      return {fmt::format("{}: {}: the address must be a server's directory", path, std::strerror(ENOTDIR)),
              false};
    default:
      return {fmt::format("{}: {}", path, std::strerror(errno))};
  }
}

/// The identity of the socket file at a path: a different or missing file means a different server. Inode
/// numbers are reused, so the time of creation is part of it.
struct SocketFile {
  ino_t inode = 0;
  std::int64_t seconds = 0, nanoseconds = 0;

  static SocketFile at(const std::string& path) {
    struct stat file {};
    if (::stat(path.c_str(), &file) != 0) return {};
    return {file.st_ino, file.st_ctim.tv_sec, file.st_ctim.tv_nsec};
  }
  friend bool operator==(const SocketFile&, const SocketFile&) = default;
};

constexpr std::string_view kStartIt =
    "start it with `headrace serve CONFIG`, or name the running server's directory "
    "(HEADRACE_ADDRESS)";
constexpr std::string_view kRaiseIt =
    "see its log; if it has no descriptors left, start it again with a higher limit of open files (ulimit "
    "-n)";
constexpr std::string_view kWakeIt = "if it is stopped (state T in `ps`), continue it; else restart it";

tl::unexpected<Error> unreachable(const std::string& step, std::string_view advice,
                                  const Deadline& deadline) {
  const double spent = deadline.seconds_spent();
  return fail(ErrorCode::kServerUnreachable,
              fmt::format("no server{}: {}; {}", spent < 0.05 ? "" : fmt::format(" within {:.1f} s", spent),
                          step, advice));
}

tl::unexpected<Error> interrupted(const std::string& op) {
  return fail(ErrorCode::kTimeout, fmt::format("interrupted while waiting for the answer to '{}'", op));
}

/// Receives a message if one has arrived; false if none has.
bool receive(zmq::socket_t& socket, zmq::message_t& message) {
  return wire::through_signals([&] { return socket.recv(message, zmq::recv_flags::dontwait); }).has_value();
}

/// Watches a socket's connection through libzmq's events: the kernel closes the connection when the server
/// dies, so no probing is needed.
class ConnectionWatch {
 public:
  ConnectionWatch(zmq::context_t& context, zmq::socket_t& watched)
      : watched_(watched), events_(context, zmq::socket_type::pair) {
    constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_DISCONNECTED;
    if (::zmq_socket_monitor(watched_.handle(), kEndpoint, kEvents) != 0) throw zmq::error_t();
    events_.set(zmq::sockopt::linger, 0);
    events_.set(zmq::sockopt::rcvhwm, 0);  // no limit, so that libzmq's thread never blocks
    events_.connect(kEndpoint);
  }
  /// Stops the events before their reader is destroyed: without a reader, libzmq's thread would block.
  ~ConnectionWatch() { ::zmq_socket_monitor(watched_.handle(), nullptr, 0); }
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  /// Waits for a message or an event. True if, since the last call, the connection was lost, refused or made
  /// again.
  bool wait(milliseconds limit) {
    zmq::pollitem_t items[] = {{watched_.handle(), 0, ZMQ_POLLIN, 0}, {events_.handle(), 0, ZMQ_POLLIN, 0}};
    try {
      zmq::poll(items, 2, limit);
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
    bool broken = false;
    zmq::message_t event, endpoint;  // libzmq sends two parts per event
    while (receive(events_, event) && receive(events_, endpoint)) {
      std::uint16_t kind = 0;
      std::memcpy(&kind, event.data(), sizeof kind);
      if (kind == ZMQ_EVENT_DISCONNECTED) was_closed_ = true;
      if (kind != ZMQ_EVENT_CONNECTED || std::exchange(was_connected_, true)) broken = true;
    }
    return broken;
  }
  [[nodiscard]] bool was_connected() const { return was_connected_; }
  [[nodiscard]] bool was_closed() const { return was_closed_; }  ///< by the other side

 private:
  static constexpr const char* kEndpoint = "inproc://connection";

  zmq::socket_t& watched_;
  zmq::socket_t events_;
  bool was_connected_ = false, was_closed_ = false;
};

/// Checks the sender of each reply: libzmq may have reconnected since the socket was checked.
Result<void> check_sender(const zmq::message_t& message, const std::string& path, const Address& server) {
  const auto uid = uid_of_peer_address(::zmq_msg_gets(message.handle(), kPeerAddress));
  if (uid && is_trusted_user(*uid, server.allow_uids)) return {};
  return not_trusted(
      path, uid ? fmt::format("its reply came from user {}", *uid) : "its reply came from an unknown user");
}

/// The error for a connection that was lost before the answer came; nullopt if the same server still listens.
std::optional<Error> loss(const std::string& path, const SocketFile& asked, const Address& server,
                          const std::string& op) {
  const SocketProblem problem = check_socket(path, server);
  if (problem.code == ErrorCode::kPermissionDenied) return Error{problem.code, problem.what};
  if (SocketFile::at(path) == asked && problem.none()) return std::nullopt;
  return Error{ErrorCode::kServerLost,
               fmt::format("the server at {} exited before it answered '{}'", path, op)};
}

Result<Answer> converse(zmq::socket_t& socket, ConnectionWatch& connection, const Address& server,
                        const wire::Request& request, const Deadline& deadline, const Interrupt& interrupt) {
  const std::string path = server.directory + "/" + wire::kControlSocket;
  const std::string frame = wire::encode(request);
  if (frame.size() > wire::kMaxFrame)
    return fail(ErrorCode::kInvalidArgument, fmt::format("request '{}' has {} bytes, at most {} are allowed",
                                                         request.op, frame.size(), wire::kMaxFrame));
  SocketFile asked = SocketFile::at(path);
  wire::through_signals([&] { socket.connect("ipc://" + path); });
  wire::through_signals([&] { return socket.send(zmq::buffer(frame), zmq::send_flags::dontwait); });
  for (;;) {
    const bool broken = connection.wait(std::min(kSlice, deadline.left()));
    // Without a server at first, the one that libzmq connected to is the one that was asked.
    if (asked.inode == 0 && connection.was_connected()) asked = SocketFile::at(path);
    zmq::message_t text;
    if (!receive(socket, text)) {
      if (interrupt && interrupt()) return interrupted(request.op);
      // Once connected, a missing file means that the server removed it as it ended.
      if (broken && (asked.inode != 0 || connection.was_connected()))
        if (auto lost = loss(path, asked, server, request.op)) return fail(std::move(*lost));
      if (!deadline.over()) continue;
      const SocketProblem problem = check_socket(path, server);
      if (problem.code == ErrorCode::kPermissionDenied) return fail(problem.code, problem.what);
      if (!problem.none()) return unreachable(problem.what, kStartIt, deadline);
      if (connection.was_closed())
        return unreachable(
            fmt::format("the server at {} closed the connection before it answered '{}'", path, request.op),
            kRaiseIt, deadline);
      return unreachable(fmt::format("a server listens on {}, but did not answer '{}'", path, request.op),
                         kWakeIt, deadline);
    }
    if (auto trusted = check_sender(text, path, server); !trusted) return fail(trusted.error());
    Answer answer;
    if (text.more()) {
      zmq::message_t part;
      (void)receive(socket, part);  // does not block: libzmq delivers all parts of a message together
      const auto* bytes = static_cast<const std::byte*>(part.data());
      answer.binary.assign(bytes, bytes + part.size());
    }
    auto reply = wire::decode_reply(text.to_string_view());
    if (!reply) return fail(reply.error());
    // A server that cannot parse a request replies with id 0.
    if (reply->id != request.id && reply->body) continue;
    if (!reply->body) return fail(reply->body.error());
    answer.body = std::move(*reply->body);
    return answer;
  }
}

}  // namespace

Result<Answer> exchange(const Address& server, std::string op, nlohmann::json body, const Deadline& deadline,
                        const Interrupt& interrupt) {
  if (auto trusted = check_directory(server); !trusted) return fail(trusted.error());
  if (auto enough = check_descriptors(); !enough) return fail(enough.error());
  static std::atomic<std::int64_t> next_id{1};
  const wire::Request request{next_id.fetch_add(1, std::memory_order_relaxed), std::move(op),
                              std::move(body)};
  try {
    zmq::context_t context(1);
    zmq::socket_t socket(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::reconnect_ivl, 20);
    socket.set(zmq::sockopt::maxmsgsize, std::int64_t{1} << 30);
    ConnectionWatch connection(context, socket);
    return converse(socket, connection, server, request, deadline, interrupt);
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kEnvironment,
                fmt::format("control socket in {}: {}", server.directory, error.what()));
  }
}

Result<wire::HelloReply> say_hello(const Address& server, const Deadline& deadline,
                                   const Interrupt& interrupt) {
  const std::string path = server.directory + "/" + wire::kControlSocket;
  const auto body = wire::to_json(wire::HelloRequest{kVersion, ring::kLayoutVersion});
  Result<Answer> answer = fail(ErrorCode::kServerLost, {});
  for (;;) {
    if (auto trusted = check_directory(server); !trusted) return fail(trusted.error());
    const SocketProblem problem = check_socket(path, server);
    if (!problem.waiting_helps) return fail(problem.code, problem.what);
    if (problem.none()) answer = exchange(server, "hello", body, deadline, interrupt);
    if (problem.none() && (answer || answer.error().code != ErrorCode::kServerLost)) break;
    if (interrupt && interrupt()) return interrupted("hello");
    if (deadline.over())
      return unreachable(problem.none() ? answer.error().message : problem.what, kStartIt, deadline);
    std::this_thread::sleep_for(std::min(milliseconds(20), deadline.left()));
  }
  if (!answer) return fail(answer.error());
  auto reply = wire::parse<wire::HelloReply>(answer->body);
  if (!reply) return reply;
  if (reply->layout != ring::kLayoutVersion)
    return fail(ErrorCode::kVersionMismatch,
                fmt::format("the server in {} (headrace {}) has ring layout {}, this client (headrace {}) "
                            "has {}: install the "
                            "same version on both sides",
                            server.directory, reply->server, reply->layout, kVersion, ring::kLayoutVersion));
  return reply;
}

}  // namespace headrace::client
