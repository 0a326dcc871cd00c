#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/ring/fd_passing.h"
#include "server/session/sessions.h"
#include "tests/property/simulation/door.h"
#include "tests/temp_folder.h"

namespace headrace::testing {

using server::exec::Engine;
using server::session::Sessions;

void Connection::close(bool killed) {
  client_closed = true;
  if (!socket) return;
  if (!killed) (void)ring::send_packet(socket.get(), wire::kAttachGoodbye, {});
  socket.reset();
}

namespace {

class SocketDoor final : public Door {
 public:
  SocketDoor(Engine& engine, Record& record) : Door(engine, record), sessions_(engine) {
    require(sessions_.listen(path()).has_value(), "a socket to attach to");
  }

  [[nodiscard]] std::uint64_t token_life_ns() const override { return 5'000'000'000; }  // kTokenLifeNs

  /// The server takes the lane when it gets the token.
  Result<wire::AttachReply> open(Connection& connection, const wire::OpenRequest& request,
                                 std::uint64_t now_ns) override {
    auto opened = sessions_.open(request, ::getuid(), now_ns);
    if (!opened) return fail(opened.error());
    ring::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    require(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
            "a connection to the server");
    if (auto sent = ring::send_packet(socket.get(), std::string(wire::kAttachHello) + opened->token, {});
        !sent)
      return fail(sent.error());
    handle(now_ns);  // accepts the connection
    handle(now_ns);  // reads the token
    auto packet = ring::receive_packet(socket.get(), std::chrono::milliseconds(0));
    if (!packet) return fail(packet.error());
    if (!packet->bytes.starts_with("ok ")) return refusal(packet->bytes);
    auto reply = wire::parse<wire::AttachReply>(nlohmann::json::parse(packet->bytes.substr(3)));
    if (!reply) return reply;
    auto reader = ring::RingReader::open({std::move(packet->fds.at(0)), std::move(packet->fds.at(1)),
                                          std::move(packet->fds.at(2)), std::move(packet->fds.at(3))},
                                         reply->lane);
    if (!reader) return fail(reader.error());
    connection.socket = std::move(socket);
    connection.reader = std::move(*reader);
    connection.session = reply->session;
    return reply;
  }

  Result<std::shared_ptr<ring::RingReader>> attach(Connection& connection, bool /*memory*/,
                                                   std::uint64_t /*now_ns*/) override {
    return std::exchange(connection.reader, nullptr);
  }

  Result<wire::CursorSetReply> seek(const Connection& connection, const Cursor& cursor) override {
    return sessions_.seek({connection.session, cursor});
  }

  void find_ended(const Connections& connections) override {
    for (const auto& connection : connections) {
      if (connection->server_closed) continue;
      connection->server_closed = connection->client_closed || ended(connection->socket.get());
      if (connection->server_closed) connection->socket.reset();
    }
  }

  void look_after(const Connections& connections, std::uint64_t now_ns) override {
    handle(now_ns);
    sessions_.tick(now_ns, kEvictNs);
    find_ended(connections);
    for (const auto& connection : connections)  // a process that died between open() and attach()
      if (!connection->attached && connection->expires_ns < now_ns) connection->close(true);
  }

 private:
  [[nodiscard]] std::string path() const { return (folder_.path() / wire::kAttachSocket).string(); }
  void handle(std::uint64_t now_ns) {
    std::vector<pollfd> polls;
    sessions_.add_polls(polls);
    if (::poll(polls.data(), polls.size(), 0) > 0) sessions_.handle(polls, now_ns);
  }
  static tl::unexpected<Error> refusal(std::string_view answer) {  // "error <CODE> <message>"
    answer.remove_prefix(std::min<std::size_t>(6, answer.size()));
    const auto space = std::min(answer.find(' '), answer.size());
    return fail(error_code_from_name(answer.substr(0, space)), std::string(answer.substr(space)));
  }
  [[nodiscard]] static bool ended(int socket) {
    if (socket < 0) return true;
    pollfd entry{.fd = socket, .events = POLLRDHUP, .revents = 0};
    return ::poll(&entry, 1, 0) > 0;
  }

  const TempFolder folder_;
  Sessions sessions_;
};

}  // namespace

std::unique_ptr<Door> make_socket_door(Engine& engine, Record& record) {
  return std::make_unique<SocketDoor>(engine, record);
}

}  // namespace headrace::testing
