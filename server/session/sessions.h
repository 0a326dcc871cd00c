// Sessions: from a token to an attached client, and to its end. A session is a connection to
// <directory>/attach.sock; it ends with that connection or with the client's process (pidfd), whichever is
// noticed first.
//
// Thread safety: only the session thread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "clientlib/ring/segment.h"
#include "clientlib/ring/unique_fd.h"
#include "clientlib/wire/protocol.h"
#include "headrace/error.h"
#include "server/exec/engine.h"
#include "server/log/log.h"
#include "server/session/refusals.h"

namespace headrace::server::session {

class Sessions {
 public:
  explicit Sessions(exec::Engine& engine) : engine_(engine) {}
  ~Sessions();

  /// Binds the attach socket.
  Result<void> listen(const std::filesystem::path& path);

  // --- control operations
  /// Gives a token for the attach socket. `uid`: of the peer.
  Result<wire::OpenReply> open(const wire::OpenRequest& request, std::uint32_t uid, std::uint64_t now_ns);
  Result<wire::CursorSetReply> seek(const wire::CursorSetRequest& request);
  Result<wire::FailureReply> failure(const wire::FailureRequest& request);

  // --- the session thread's loop
  /// Appends the descriptors to poll. Call `handle` with the same entries afterwards.
  void add_polls(std::vector<pollfd>& polls) const;
  void handle(const std::vector<pollfd>& ready, std::uint64_t now_ns);
  /// Forgets expired tokens, ends clients with invalid segments, and fences stuck clients.
  void tick(std::uint64_t now_ns, std::uint64_t evict_after_ns);

  [[nodiscard]] std::size_t attached() const { return sessions_.size(); }

 private:
  void end_disconnected(const std::vector<pollfd>& ready, std::uint64_t now_ns);
  /// The request of a client that has not attached yet.
  struct Token {
    std::string token;
    std::uint32_t uid = 0;
    wire::OpenRequest request;
    std::uint64_t expires_ns = 0;
  };
  struct Session {
    std::size_t stream = 0;
    std::uint32_t lane = 0;
    std::string name, client;
    std::int64_t pid = 0;
    ring::UniqueFd socket, pidfd, doorbell;
  };
  /// A connection that has not sent its token yet.
  struct PendingClient {
    ring::UniqueFd socket;
    std::uint64_t expires_ns = 0;
  };
  using SessionIt = std::list<Session>::iterator;

  /// The attached session of this name; kTokenInvalid: it has ended.
  Result<SessionIt> find(const std::string& name);
  void accept_clients(std::uint64_t now_ns);
  void handle_hello(PendingClient& client, std::uint64_t now_ns);
  /// Takes a lane for it, if its packet has a valid token.
  Result<void> attach(PendingClient& client, std::uint64_t now_ns);
  /// Gives it the lane's segments.
  Result<void> admit(SessionIt session, const wire::AttachReply& reply, ring::Segment lease,
                     std::uint64_t now_ns);
  static void refuse(const PendingClient& client, const Error& why);
  SessionIt end(SessionIt session, const std::string& why, std::uint64_t now_ns,
                log::Level level = log::Level::kInfo);

  exec::Engine& engine_;
  ring::UniqueFd listener_;
  std::list<Token> tokens_;  ///< oldest first
  std::list<Session> sessions_;
  std::list<PendingClient> pending_;  ///< oldest first
  std::map<ErrorCode, Refusals> refused_;
};

}  // namespace headrace::server::session
