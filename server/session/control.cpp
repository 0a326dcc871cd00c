#include "server/session/control.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <unistd.h>

#include <zmq.hpp>

#include "clientlib/ring/futex.h"
#include "clientlib/ring/layout.h"
#include "clientlib/wire/protocol.h"
#include "headrace/version.h"

namespace headrace::server::session {

using nlohmann::json;

namespace {

/// Samples cost milliseconds each: so it is time that is bounded, not a number of requests.
constexpr std::uint64_t kTurnNs = 10'000'000;

}  // namespace

struct Control::Socket {
  zmq::context_t context{1};
  zmq::socket_t router{context, zmq::socket_type::router};
};

Control::Control(exec::Engine& engine, Sessions& sessions, std::function<json()> stats,
                 std::function<void()> drain, metrics::Count& bad_messages)
    : engine_(engine),
      sessions_(sessions),
      stats_(std::move(stats)),
      drain_(std::move(drain)),
      socket_(std::make_unique<Socket>()),
      bad_messages_(bad_messages) {
  if (::getrandom(&instance_, sizeof instance_, 0) != sizeof instance_) std::abort();
  instance_ >>= 1;  // fits a signed 64-bit JSON integer
}

Control::~Control() = default;

Result<void> Control::bind(const std::filesystem::path& path) {
  try {
    zmq::socket_t& router = socket_->router;
    router.set(zmq::sockopt::linger, 200);
    router.set(zmq::sockopt::sndhwm, 64);  // a client that never reads costs bounded memory
    router.set(zmq::sockopt::rcvhwm, 256);
    router.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::kMaxFrame));
    router.bind("ipc://" + path.string());
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kEnvironment, fmt::format("control socket {}: {}", path.string(), error.what()));
  }
  return {};
}

int Control::fd() const {
  return socket_->router.get(zmq::sockopt::fd);
}

bool Control::handle() {
  const std::uint64_t end = ring::monotonic_ns() + kTurnNs;
  while (ring::monotonic_ns() < end) {
    zmq::message_t identity, frame;
    if (!socket_->router.recv(identity, zmq::recv_flags::dontwait)) return false;
    bool more = identity.more();
    int frames = 0;
    while (more) {
      zmq::message_t part;
      (void)socket_->router.recv(part, zmq::recv_flags::none);
      more = part.more();
      frame = std::move(part);
      ++frames;
    }
    auto request = frames == 1
                       ? wire::decode_request(frame.to_string_view())
                       : Result<wire::Request>(fail(ErrorCode::kBadMessage, "a request is one frame"));
    Answer reply{json::object(), {}};
    if (request) {
      reply = answer(request->op, request->body);
    } else {
      reply.body = tl::make_unexpected(request.error());
    }
    if (!reply.body && reply.body.error().code == ErrorCode::kBadMessage) {
      bad_messages_.add(1);
      spdlog::debug("bad control message: {}", reply.body.error().message);
    }
    const std::string text = wire::encode(wire::Reply{request ? request->id : 0, std::move(reply.body)});
    try {
      const auto last = reply.binary.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore;
      socket_->router.send(identity, zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      socket_->router.send(zmq::buffer(text), last | zmq::send_flags::dontwait);
      if (!reply.binary.empty()) socket_->router.send(zmq::buffer(reply.binary), zmq::send_flags::dontwait);
    } catch (const zmq::error_t& error) {
      spdlog::debug("reply dropped: {}", error.what());
    }
  }
  return true;
}

Control::Answer Control::answer(const std::string& op, const json& body) {
  const auto refuse = [](const Error& error) { return Answer{tl::make_unexpected(error), {}}; };
  if (op == "hello") {
    auto hello = wire::parse<wire::HelloRequest>(body);
    if (!hello) return refuse(hello.error());
    if (hello->layout != ring::kLayoutVersion)
      return refuse({ErrorCode::kVersionMismatch,
                     fmt::format("the server (headrace {}) has ring layout {}, the client "
                                 "(headrace {}) has {}: install the same version on both sides",
                                 kVersion, ring::kLayoutVersion, hello->client, hello->layout)});
    return {wire::to_json(wire::HelloReply{kVersion, ring::kLayoutVersion, instance_, ::getpid()}), {}};
  }
  if (op == "streams") {
    json list = json::array();
    for (std::size_t i = 0; i < engine_.stream_count(); ++i)
      list.push_back(wire::to_json(engine_.stream(i).info()));
    return {json{{"streams", std::move(list)}}, {}};
  }
  if (op == "open") {
    auto request = wire::parse<wire::OpenRequest>(body);
    if (!request) return refuse(request.error());
    if (draining_)
      return refuse({ErrorCode::kDraining, "the server is shutting down: attach again once it is back"});
    auto reply = sessions_.open(*request);
    if (!reply) return refuse(reply.error());
    return {wire::to_json(*reply), {}};
  }
  if (op == "cursor_set") {
    auto request = wire::parse<wire::CursorSetRequest>(body);
    if (!request) return refuse(request.error());
    auto reply = sessions_.seek(*request);
    if (!reply) return refuse(reply.error());
    return {wire::to_json(*reply), {}};
  }
  if (op == "cursor_get") {
    auto request = wire::parse<wire::CursorGetRequest>(body);
    if (!request) return refuse(request.error());
    const auto stream = engine_.find(request->stream);
    if (!stream) return refuse(stream.error());
    auto reply = engine_.look(*stream, [&](const exec::Stream& s) { return s.cursors(request->group); });
    if (!reply) return refuse(reply.error());
    return {wire::to_json(*reply), {}};
  }
  if (op == "stats") return {stats_(), {}};
  if (op == "sample") return sample(body);
  if (op == "drain") {
    drain_();
    return {json::object(), {}};
  }
  return refuse({ErrorCode::kBadMessage, fmt::format("unknown operation `{}`", op.substr(0, 40))});
}

Control::Answer Control::sample(const json& body) {
  const auto refuse = [](const Error& error) { return Answer{tl::make_unexpected(error), {}}; };
  auto request = wire::parse<wire::SampleRequest>(body);
  if (!request) return refuse(request.error());
  const auto index = engine_.find(request->stream);
  if (!index) return refuse(index.error());
  const exec::SampleMaker& maker = engine_.stream(*index).maker();
  if (request->index >= maker.size())
    return refuse({ErrorCode::kInvalidArgument, fmt::format("index {}: stream `{}` has {} samples per epoch",
                                                            request->index, request->stream, maker.size())});
  std::string binary(row_bytes(maker.fields()[0]), '\0');
  auto row = maker.make(maker.order(request->epoch), request->epoch, request->index,
                        reinterpret_cast<std::byte*>(binary.data()), scratch_, uncounted_);
  if (!row) return refuse(row.error());
  binary.append(reinterpret_cast<const char*>(&row->label), sizeof row->label);
  auto explanation = maker.explain(request->epoch, request->index, *row);
  if (!explanation) return refuse(explanation.error());
  wire::SampleReply reply;
  reply.sample_index = row->sample_index;
  reply.name = explanation->name;
  reply.replaced = row->replaced;
  reply.label = row->label;
  reply.fields = maker.fields();
  reply.parameters = json::parse(explanation->parameters);
  return {wire::to_json(reply), std::move(binary)};
}

}  // namespace headrace::server::session
