// How clients come to a server and leave it: directly, or through its sessions and their socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/ring/ring_reader.h"
#include "server/exec/engine.h"
#include "tests/property/simulation/record.h"

namespace headrace::testing {

/// One attachment, from open to its end, as client and server see it.
struct Connection {
  std::string client;
  std::size_t stream = 0;
  std::uint32_t lane = 0;
  std::uint64_t expires_ns = 0;  ///< unless it is attached by then
  bool attached = false, hostile = false;
  bool client_closed = false, server_closed = false;
  std::string session;  ///< with sockets only, as the next two
  ring::UniqueFd socket;
  std::shared_ptr<ring::RingReader> reader;  ///< until attach()
  /// What a client held that was killed: it stays until the server notices.
  std::vector<std::pair<std::shared_ptr<ring::RingReader>, ring::Grant>> ghosts;

  /// The client closes it; `killed`: without a word.
  void close(bool killed);
};

class Door {
 public:
  static constexpr std::uint64_t kEvictNs = 1'000'000'000;

  Door(server::exec::Engine& engine, Record& record) : engine_(engine), record_(record) {}
  virtual ~Door() = default;
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// After this time an unused token has expired.
  [[nodiscard]] virtual std::uint64_t token_life_ns() const = 0;
  virtual Result<wire::AttachReply> open(Connection& connection, const wire::OpenRequest& request,
                                         std::uint64_t now_ns) = 0;
  /// `memory`: there is some for the client's lease segment; otherwise it is refused, and its session ends.
  virtual Result<std::shared_ptr<ring::RingReader>> attach(Connection& connection, bool memory,
                                                           std::uint64_t now_ns) = 0;
  virtual Result<wire::CursorSetReply> seek(const Connection& connection, const Cursor& cursor) = 0;
  using Connections = std::vector<std::shared_ptr<Connection>>;
  /// Marks the connections that the server has ended; open() and attach() may do that, too.
  virtual void find_ended(const Connections& /*connections*/) {}
  /// Ends the sessions of clients that are gone, too late or hostile, and fences those that are stuck.
  virtual void look_after(const Connections& connections, std::uint64_t now_ns) = 0;

 protected:
  server::exec::Engine& engine_;
  Record& record_;
};

std::unique_ptr<Door> make_direct_door(server::exec::Engine& engine, Record& record);
std::unique_ptr<Door> make_socket_door(server::exec::Engine& engine, Record& record);

}  // namespace headrace::testing
