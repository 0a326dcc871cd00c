#include "server/session/control.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <new>
#include <zmq.hpp>

#include "clientlib/base/thrown.h"
#include "clientlib/ring/futex.h"
#include "clientlib/ring/layout.h"
#include "clientlib/wire/interrupted.h"
#include "clientlib/wire/protocol.h"
#include "headrace/version.h"
#include "server/log/log.h"
#include "server/log/sink.h"
#include "server/session/admission.h"

namespace headrace::server::session {

using nlohmann::json;

namespace {

/// Stands for peers whose user the kernel does not report.
constexpr std::uint32_t kUnknownUser = ~std::uint32_t{0};

/// Some requests cost a thousand times as much as others: so their time is limited, not their number.
constexpr std::uint64_t kTurnNs = 10'000'000;

/// No more samples are made while all clients together have this many unread sample bytes.
constexpr std::size_t kMostUnread = std::size_t{64} << 20;

/// A frame that owns `bytes` and counts them in `unread` while libzmq holds it.
zmq::message_t counted(std::string bytes, std::atomic<std::size_t>& unread) {
  struct Held {
    Held(std::string given, std::atomic<std::size_t>& counter) : bytes(std::move(given)), unread(counter) {
      unread.fetch_add(bytes.size(), std::memory_order_relaxed);
    }
    ~Held() { unread.fetch_sub(bytes.size(), std::memory_order_relaxed); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    std::string bytes;
    std::atomic<std::size_t>& unread;
  };
  auto held = std::make_unique<Held>(std::move(bytes), unread);
  zmq::message_t frame(
      held->bytes.data(), held->bytes.size(),
      [](void*, void* hint) { const std::unique_ptr<Held> gone(static_cast<Held*>(hint)); }, held.get());
  (void)held.release();  // owned by the frame now
  return frame;
}

/// A frame's size on the wire: flags, length (ZMTP 3: one byte up to 255) and payload.
std::size_t wire_bytes(const zmq::message_t& frame) {
  return frame.size() + (frame.size() > 255 ? 9 : 2);
}

/// False: no frame has arrived.
bool receive(zmq::socket_t& socket, zmq::message_t& frame) {
  return wire::through_signals([&] { return socket.recv(frame, zmq::recv_flags::dontwait); }).has_value();
}

/// The user that sent a frame, as noted when it connected: the descriptor may belong to another connection by
/// now.
std::optional<std::uint32_t> sender(const zmq::message_t& frame) {
  return uid_of_peer_address(::zmq_msg_gets(frame.handle(), kPeerAddress));
}

}  // namespace

struct Control::Socket {
  /// With zero copy, libzmq would keep 8 KiB for each part that arrives by itself.
  static zmq::context_t copying_context() {
    constexpr int kZeroCopyRecv = 10;  // ZMQ_ZERO_COPY_RECV, which libzmq's header defines only for drafts
    zmq::context_t context{1};
    ::zmq_ctx_set(context.handle(), kZeroCopyRecv, 0);
    return context;
  }
  zmq::context_t context = copying_context();
  zmq::socket_t router{context, zmq::socket_type::router};
};

Control::Control(exec::Engine& engine, Sessions& sessions, std::function<json()> stats,
                 std::function<void()> drain, metrics::Count& bad_messages)
    : engine_(engine),
      sessions_(sessions),
      stats_(std::move(stats)),
      drain_(std::move(drain)),
      socket_(std::make_unique<Socket>()),
      samples_(engine),
      bad_messages_(bad_messages) {
  if (::getrandom(&instance_, sizeof instance_, 0) != sizeof instance_) std::abort();
  instance_ >>= 1;  // fits a signed 64-bit JSON integer
}

Control::~Control() = default;

Result<void> Control::bind(const std::filesystem::path& path) {
  try {
    zmq::socket_t& router = socket_->router;
    router.set(zmq::sockopt::linger, 200);
    router.set(zmq::sockopt::sndhwm, 64);  // bounds the memory for a client that never reads
    router.set(zmq::sockopt::rcvhwm, 256);
    router.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::kMaxFrame));
    router.bind("ipc://" + path.string());
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kEnvironment, fmt::format("control socket {}: {}", path.string(), error.what()));
  }
  return {};
}

void Control::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({socket_->router.get(zmq::sockopt::fd), POLLIN, 0});
  polls.push_back({samples_.fd(), POLLIN, 0});
}

void Control::send(const std::string& identity, std::int64_t id, Answer answer) {
  if (!answer.body) answer.body.error().message = log::escaped(answer.body.error().message);
  const std::string text = wire::encode(wire::Reply{id, std::move(answer.body)});
  try {
    zmq::socket_t& router = socket_->router;
    const auto part = [&](zmq::message_t& frame, zmq::send_flags more) {
      wire::through_signals([&] { return router.send(frame, more | zmq::send_flags::dontwait); });
    };
    // All parts are made before the first is sent: half a message would merge with the next one.
    const bool two = !answer.binary.empty();
    zmq::message_t peer(identity), body(text), binary;
    if (two) binary = counted(std::move(answer.binary), unread_);
    part(peer, zmq::send_flags::sndmore);
    part(body, two ? zmq::send_flags::sndmore : zmq::send_flags::none);
    if (two) part(binary, zmq::send_flags::none);
  } catch (const zmq::error_t& error) {
    log::debug("reply dropped: {}", error.what());
  }
}

bool Control::handle() {
  for (SampleDesk::Made& made : samples_.take())
    send(made.asker.identity, made.asker.id, std::move(made.answer));
  const std::uint64_t end = ring::monotonic_ns() + kTurnNs;
  while (ring::monotonic_ns() < end) {
    zmq::message_t identity, frame;
    // Before receiving, which then finds what these connections have sent.
    const std::int64_t closed = closed_ahead();
    if (!receive(socket_->router, identity)) {
      release_closed(closed);
      return false;
    }
    bool more = identity.more();
    int frames = 0;
    std::size_t bytes = 0;
    while (more) {
      zmq::message_t part;
      if (!receive(socket_->router, part)) break;  // libzmq delivers only whole messages
      more = part.more();
      bytes += wire_bytes(part);
      frame = std::move(part);
      ++frames;
    }
    count_taken(::zmq_msg_get(frame.handle(), ZMQ_SRCFD), bytes);
    serve(identity.to_string(), frames == 1 ? frame.to_string_view() : std::string_view(), sender(frame));
  }
  return true;
}

void Control::serve(const std::string& asker, std::string_view frame, std::optional<std::uint32_t> uid) {
  std::int64_t id = 0;
  try {
    const auto request = frame.empty()
                             ? Result<wire::Request>(fail(ErrorCode::kBadMessage, "a request is one frame"))
                             : wire::decode_request(frame);
    if (request) id = request->id;
    serve(asker, id, request, uid);
  } catch (const std::bad_alloc&) {
    // Without a reply, the client would wait until its timeout.
    log::error("a request failed: no memory");
    send(asker, id,
         {fail(ErrorCode::kNotEnoughMemory,
               "the server has no memory left to answer: free some on its machine, or raise its limit"),
          {}});
  }
}

void Control::serve(const std::string& asker, std::int64_t id, const Result<wire::Request>& request,
                    std::optional<std::uint32_t> uid) {
  Result<json> body = json::object();
  try {
    if (!request) {
      body = fail(request.error());
    } else if (request->op == "sample") {
      auto wanted = wire::parse<wire::SampleRequest>(request->body);
      if (wanted && unread_.load(std::memory_order_relaxed) > kMostUnread)
        wanted = fail(ErrorCode::kTimeout,
                      fmt::format("sample refused: clients have not read {} MiB of earlier "
                                  "samples (limit: {} MiB); read pending replies, or ask "
                                  "again later",
                                  unread_.load(std::memory_order_relaxed) >> 20, kMostUnread >> 20));
      auto asked = wanted ? samples_.ask({asker, id}, *wanted) : fail(wanted.error());
      if (asked) return;  // the reply is sent once the sample is made
      body = tl::make_unexpected(asked.error());
    } else {
      body = answer(request->op, request->body, uid);
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    log::error("request `{}` failed: {}", request ? request->op.substr(0, 40) : "(malformed)", thrown());
    body = fail(ErrorCode::kInternal,
                fmt::format("internal error in the server: {}; see the server's log", thrown()));
  }
  if (!body && body.error().code == ErrorCode::kBadMessage) {
    bad_messages_.add(1);
    log::debug("bad control message: {}", body.error().message);
  }
  send(asker, id, {std::move(body), {}});
}

Result<json> Control::answer(const std::string& op, const json& body, std::optional<std::uint32_t> uid) {
  if (op == "hello") {
    auto hello = wire::parse<wire::HelloRequest>(body);
    if (!hello) return fail(hello.error());
    if (hello->layout != ring::kLayoutVersion)
      return fail(ErrorCode::kVersionMismatch,
                  fmt::format("the server (headrace {}) has ring layout {}, the client "
                              "(headrace {}) has {}: install the same version on both sides",
                              kVersion, ring::kLayoutVersion, hello->client, hello->layout));
    return wire::to_json(wire::HelloReply{kVersion, ring::kLayoutVersion, instance_, ::getpid()});
  }
  if (op == "streams") {
    json list = json::array();
    for (std::size_t i = 0; i < engine_.stream_count(); ++i)
      list.push_back(wire::to_json(engine_.stream(i).info()));
    return json{{"streams", std::move(list)}};
  }
  if (op == "open") {
    auto request = wire::parse<wire::OpenRequest>(body);
    if (!request) return fail(request.error());
    if (draining_)
      return fail(ErrorCode::kDraining, "the server is shutting down: attach again once it is back");
    auto reply = sessions_.open(*request, uid.value_or(kUnknownUser), ring::monotonic_ns());
    if (!reply) return fail(reply.error());
    return wire::to_json(*reply);
  }
  if (op == "cursor_set") {
    auto request = wire::parse<wire::CursorSetRequest>(body);
    if (!request) return fail(request.error());
    auto reply = sessions_.seek(*request);
    if (!reply) return fail(reply.error());
    return wire::to_json(*reply);
  }
  if (op == "failure") {
    auto request = wire::parse<wire::FailureRequest>(body);
    if (!request) return fail(request.error());
    auto reply = sessions_.failure(*request);
    if (!reply) return fail(reply.error());
    return wire::to_json(*reply);
  }
  if (op == "cursor_get") {
    auto request = wire::parse<wire::CursorGetRequest>(body);
    if (!request) return fail(request.error());
    const auto stream = engine_.find(request->stream);
    if (!stream) return fail(stream.error());
    auto reply =
        engine_.inspect(*stream, [&](const exec::Stream& s) { return s.lanes().cursors(request->group); });
    if (!reply) return fail(reply.error());
    return wire::to_json(*reply);
  }
  if (op == "stats") return stats_();
  if (op == "drain") {
    if (!uid || !is_trusted_user(*uid))
      return fail(ErrorCode::kPermissionDenied,
                  fmt::format("user {} may not drain the server of user {}: ask that user, or root",
                              uid ? std::to_string(*uid) : "(unknown)", ::geteuid()));
    drain_();
    return json::object();
  }
  return fail(ErrorCode::kBadMessage, fmt::format("unknown operation `{}`", op.substr(0, 40)));
}

}  // namespace headrace::server::session
