#include "server/session/sessions.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>

#include "clientlib/base/thrown.h"
#include "clientlib/ring/fd_passing.h"
#include "clientlib/ring/futex.h"
#include "server/log/log.h"
#include "server/log/sink.h"
#include "server/session/admission.h"
#include "server/session/descriptors.h"
#include "server/session/local_socket.h"

namespace headrace::server::session {
namespace {

constexpr std::uint64_t kTokenLifeNs = 5'000'000'000;
/// Tokens of one user at a time; beyond it the oldest is forgotten.
constexpr std::size_t kMostTokens = 1024;
/// Cap connections that have not sent a token; beyond it the oldest is closed.
constexpr std::size_t kMaxPending = 256;
/// A new connection survives at least this many rounds of the loop before it can be the oldest.
constexpr std::size_t kRoundsToSend = 4;

std::string random_token() {
  std::uint64_t words[2];
  if (::getrandom(words, sizeof words, 0) != sizeof words) std::abort();
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

/// None: the process has no number in this pid namespace, or is gone. Its socket reports its end, too.
ring::UniqueFd open_pidfd(std::int64_t pid) {
  return pid > 0 ? ring::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) : ring::UniqueFd();
}

/// The error for a packet of another version, or not from a client.
Error not_an_attach_packet(std::string_view packet) {
  constexpr std::string_view kAnyVersion = wire::kAttachHello.substr(0, wire::kAttachHello.find(' ') + 1);
  if (!packet.starts_with(kAnyVersion)) return {ErrorCode::kBadMessage, "not an attach packet"};
  packet.remove_prefix(kAnyVersion.size());
  std::uint32_t version = 0;
  const auto end = std::from_chars(packet.data(), packet.data() + packet.size(), version);
  if (end.ec != std::errc()) return {ErrorCode::kBadMessage, "an attach packet without a version"};
  return {ErrorCode::kVersionMismatch,
          fmt::format("attach protocol: the peer speaks version {}, this side version {}: install the same "
                      "release on both sides",
                      version, wire::kAttachHello.substr(kAnyVersion.size(), 1))};
}

bool in(const std::vector<pollfd>& ready, int fd) {
  return fd >= 0 && std::any_of(ready.begin(), ready.end(),
                                [&](const pollfd& p) { return p.fd == fd && p.revents != 0; });
}

}  // namespace

Sessions::~Sessions() {
  try {
    for (auto session = sessions_.begin(); session != sessions_.end();)
      session = end(session, "the server is stopping", ring::monotonic_ns());
  } catch (...) {
    log::error("could not detach all clients at shutdown: {}", thrown());
  }
}

Result<void> Sessions::listen(const std::filesystem::path& path) {
  auto listener = listen_on(path, 128);
  if (!listener) return fail(listener.error());
  listener_ = std::move(*listener);
  return {};
}

Result<wire::OpenReply> Sessions::open(const wire::OpenRequest& request, std::uint32_t uid,
                                       std::uint64_t now_ns) {
  const auto stream = engine_.find(request.stream);
  if (!stream) return tl::make_unexpected(stream.error());
  const auto own = [&](const Token& token) { return token.uid == uid; };
  if (std::count_if(tokens_.begin(), tokens_.end(), own) >= static_cast<std::ptrdiff_t>(kMostTokens))
    tokens_.erase(std::find_if(tokens_.begin(), tokens_.end(), own));
  tokens_.push_back(
      {.token = random_token(), .uid = uid, .request = request, .expires_ns = now_ns + kTokenLifeNs});
  return wire::OpenReply{tokens_.back().token, engine_.stream(*stream).info()};
}

Result<Sessions::SessionIt> Sessions::find(const std::string& name) {
  const auto session =
      std::find_if(sessions_.begin(), sessions_.end(), [&](const Session& s) { return s.name == name; });
  if (session == sessions_.end()) return fail(ErrorCode::kTokenInvalid, "no such session: attach again");
  return session;
}

Result<wire::FailureReply> Sessions::failure(const wire::FailureRequest& request) {
  const auto found = find(request.session);
  if (!found) return fail(found.error());
  const Session& session = **found;
  const auto why = engine_.inspect(
      session.stream, [&](const exec::Stream& stream) { return stream.lanes().failure_of(session.lane); });
  return wire::FailureReply{why ? log::escaped(why->message) : std::string()};
}

Result<wire::CursorSetReply> Sessions::seek(const wire::CursorSetRequest& request) {
  const auto found = find(request.session);
  if (!found) return fail(found.error());
  const SessionIt session = *found;
  return engine_.with(session->stream, [&](exec::Stream& stream) -> Result<wire::CursorSetReply> {
    if (auto allowed = stream.lanes().may_seek(session->lane); !allowed) return fail(allowed.error());
    if (request.cursor.origin > stream.info().samples)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("cursor {}: stream `{}` has {} samples", to_string(request.cursor),
                              stream.info().name, stream.info().samples));
    return stream.seek(session->lane, request.cursor, request.damaged);
  });
}

void Sessions::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({listener_.get(), POLLIN, 0});
  for (const PendingClient& client : pending_) polls.push_back({client.socket.get(), POLLIN, 0});
  for (const Session& session : sessions_) {
    polls.push_back({session.socket.get(), POLLIN, 0});
    if (session.pidfd) polls.push_back({session.pidfd.get(), POLLIN, 0});
  }
}

void Sessions::end_disconnected(const std::vector<pollfd>& ready, std::uint64_t now_ns) {
  const auto is_ready = [&](int fd) { return in(ready, fd); };
  for (auto session = sessions_.begin(); session != sessions_.end();) {
    if (is_ready(session->pidfd.get()) || is_ready(session->socket.get())) {
      // A client that closes its stream and exits at once may do both between two polls.
      const auto last =
          ring::receive_packet(session->socket.get(), std::chrono::milliseconds(0), ring::Descriptors::kDrop);
      if (last && last->bytes == wire::kAttachGoodbye)
        session = end(session, "it closed the stream", now_ns);
      else
        session = end(session, "it did not close the stream: its process was probably killed", now_ns,
                      log::Level::kWarning);
    } else {
      ++session;
    }
  }
}

void Sessions::handle(const std::vector<pollfd>& ready, std::uint64_t now_ns) {
  const auto is_ready = [&](int fd) { return in(ready, fd); };
  end_disconnected(ready, now_ns);
  for (auto client = pending_.begin(); client != pending_.end();) {
    if (is_ready(client->socket.get())) {
      handle_hello(*client, now_ns);
      client = pending_.erase(client);
    } else {
      ++client;
    }
  }
  if (is_ready(listener_.get())) accept_clients(now_ns);
}

void Sessions::accept_clients(std::uint64_t now_ns) {
  const std::size_t most = std::min(kMaxPending, static_cast<std::size_t>(reserved_descriptors()));
  for (std::size_t i = 0; i < most / kRoundsToSend; ++i) {
    ring::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket && (errno == ECONNABORTED || errno == EINTR)) continue;
    if (!socket) return;
    if (pending_.size() >= most) pending_.pop_front();
    pending_.push_back({std::move(socket), now_ns + kTokenLifeNs});
  }
}

void Sessions::refuse(const PendingClient& client, const Error& why) {
  const std::string answer = fmt::format("error {} {}", name_of(why.code), log::escaped(why.message));
  if (client.socket) (void)ring::send_packet(client.socket.get(), answer.substr(0, ring::kMaxPacket), {});
}

void Sessions::handle_hello(PendingClient& client, std::uint64_t now_ns) try {
  if (auto done = attach(client, now_ns); !done) {
    refused_[done.error().code].refuse("attach of {} refused: {}", describe_peer(client.socket.get()),
                                       done.error().message);
    refuse(client, done.error());
  }
} catch (const std::bad_alloc&) {  // other clients are unaffected
  log::error("attach failed: no memory");
  // Without a reply, the client would wait until its timeout.
  refuse(client,
         {ErrorCode::kNotEnoughMemory,
          "the server has no memory left to attach the client: free some on its machine, or raise its "
          "limit"});
} catch (...) {
  log::error("attach failed: {}", thrown());
  refuse(client, {ErrorCode::kInternal,
                  fmt::format("the server could not attach the client: {}; see the server's log", thrown())});
}

Result<void> Sessions::attach(PendingClient& client, std::uint64_t now_ns) {
  const auto peer = admitted_peer(client.socket.get());
  if (!peer) return fail(peer.error());
  // Another user's descriptor may be on that user's FUSE file system, where poll(2) can block.
  const bool own = is_trusted_user(peer->uid);
  auto packet = ring::receive_packet(client.socket.get(), std::chrono::milliseconds(0),
                                     own ? ring::Descriptors::kTake : ring::Descriptors::kDrop);
  if (!packet) return tl::make_unexpected(packet.error());
  if (!packet->bytes.starts_with(wire::kAttachHello)) return fail(not_an_attach_packet(packet->bytes));
  const std::string sent = packet->bytes.substr(wire::kAttachHello.size());
  const auto token =
      std::find_if(tokens_.begin(), tokens_.end(), [&](const Token& each) { return each.token == sent; });
  if (token == tokens_.end())
    return fail(ErrorCode::kTokenInvalid, "unknown, used or expired token: open again");
  const wire::OpenRequest request = std::move(token->request);
  tokens_.erase(token);
  const auto stream = engine_.find(request.stream);
  if (!stream) return tl::make_unexpected(stream.error());

  // A successor may connect before its predecessor's end was noticed, and needs its name and rank.
  std::vector<pollfd> polls;
  add_polls(polls);
  if (::poll(polls.data(), polls.size(), 0) > 0) end_disconnected(polls, now_ns);
  auto doorbell = engine_.make_doorbell();
  if (!doorbell) return tl::make_unexpected(doorbell.error());
  if (in_reserve(doorbell->get() - reserved_descriptors() / 2)) {  // the other half is reserved for workers
    engine_.unwatch(*doorbell);
    return fail(ErrorCode::kEnvironment,
                "the server has no descriptors left for another client: raise its RLIMIT_NOFILE (ulimit -n)");
  }
  auto lease = engine_.stream(*stream).make_lease();
  if (!lease) {
    engine_.unwatch(*doorbell);
    return fail(lease.error());
  }
  // Allocate everything before the lane is opened: a lane without a session would never be closed.
  std::list<Session> opened(1);
  const SessionIt session = opened.begin();
  session->stream = *stream;
  session->name = random_token();
  session->client = request.client;
  session->pid = request.pid;
  // The client sends its pidfd because a process of another pid namespace (a container) has no number here.
  session->pidfd = packet->fds.empty() ? open_pidfd(peer->pid) : std::move(packet->fds[0]);
  session->doorbell = std::move(*doorbell);
  std::string name = session->name;
  auto reply = engine_.open(*stream, request);
  if (!reply) {
    engine_.unwatch(session->doorbell);
    refuse(client, reply.error());
    return {};
  }
  session->lane = reply->lane;
  session->socket = std::move(client.socket);
  reply->session = std::move(name);
  sessions_.splice(sessions_.end(), opened);
  try {
    return admit(session, *reply, std::move(*lease), now_ns);
  } catch (...) {
    client.socket = std::move(session->socket);  // for the reply
    end(session, "it could not be attached", now_ns, log::Level::kWarning);
    throw;
  }
}

Result<void> Sessions::admit(SessionIt session, const wire::AttachReply& reply, ring::Segment lease,
                             std::uint64_t now_ns) {
  const auto attachment = engine_.with(session->stream, [&](exec::Stream& s) {
    return s.lanes().attach(session->lane, std::move(lease), now_ns);
  });
  const int fds[] = {attachment.data_fd, attachment.control_fd, attachment.lease_fd.get(),
                     session->doorbell.get()};
  const std::string answer = "ok " + wire::to_json(reply).dump();
  // Made before the answer is sent. If an allocation failed after that, the session would end, and the
  // client would not be told.
  const std::string begins_at = to_string(reply.cursor);
  if (auto told = ring::send_packet(session->socket.get(), answer, fds); !told) {
    end(session, "it disconnected before it was attached", now_ns);
    return {};
  }
  log::info("client `{}` (pid {}) attached to stream `{}` at {}", session->client, session->pid,
            engine_.stream(session->stream).info().name, begins_at);
  return {};
}

Sessions::SessionIt Sessions::end(SessionIt session, const std::string& why, std::uint64_t now_ns,
                                  log::Level level) {
  engine_.with(session->stream, [&](exec::Stream& stream) {
    stream.close(session->lane, now_ns);
    return 0;
  });
  engine_.unwatch(session->doorbell);
  log::log(level, "client `{}` (pid {}) disconnected from stream `{}`: {}", session->client, session->pid,
           engine_.stream(session->stream).info().name, why);
  return sessions_.erase(session);
}

void Sessions::tick(std::uint64_t now_ns, std::uint64_t evict_after_ns) {
  std::erase_if(tokens_, [&](const Token& token) { return token.expires_ns < now_ns; });
  std::erase_if(pending_, [&](const PendingClient& client) { return client.expires_ns < now_ns; });
  for (std::size_t i = 0; i < engine_.stream_count(); ++i) {
    const auto errors =
        engine_.inspect(i, [](const exec::Stream& stream) { return stream.lanes().protocol_errors(); });
    for (const auto& [lane, why] : errors) {
      const auto session = std::find_if(sessions_.begin(), sessions_.end(), [&, l = lane](const Session& s) {
        return s.stream == i && s.lane == l;
      });
      if (session == sessions_.end()) continue;
      log::warn("client `{}` (pid {}) is dropped: its lease segment is invalid: {}", session->client,
                session->pid, why);
      end(session, "invalid data in its lease segment", now_ns);
    }
    const auto stuck =
        engine_.with(i, [&](exec::Stream& stream) { return stream.fence_stuck(now_ns, evict_after_ns); });
    for (const std::uint32_t lane : stuck)
      log::warn("client `{}` on stream `{}` sent no heartbeat for {} s: fenced",
                engine_.inspect(i, [&](const exec::Stream& s) { return s.lanes().all()[lane].client; }),
                engine_.stream(i).info().name, evict_after_ns / 1'000'000'000);
  }
}

}  // namespace headrace::server::session
