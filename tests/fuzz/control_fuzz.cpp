// The control socket, and the attach socket for the streams that its requests open. Input: pieces, each a
// frame of one message; after a piece, an odd byte: the message goes on. SESSION stands for the name of an
// attached session.
#include "server/session/control.h"

#include <zmq.hpp>

#include "clientlib/wire/interrupted.h"
#include "tests/engine_fixture.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet.h"
#include "tests/fuzz/sockets.h"

namespace headrace {
namespace {

using nlohmann::json;
using server::session::Control;

std::unique_ptr<server::exec::Engine> start_streams() {
  fuzz::log_nothing();
  return testing::start_engine({testing::synthetic_stream("train", 500, 8, 3),
                                testing::synthetic_stream("shards", 77, 8, 4, Delivery::kShard)},
                               1);
}

/// The sockets of a server with two streams, a client of the control socket, and an attached session.
class Talk {
 public:
  Talk() {
    require(control_.bind(folder_.path() / "control.sock").has_value(), "a control socket is bound");
    client_.set(zmq::sockopt::linger, 0);
    client_.connect("ipc://" + (folder_.path() / "control.sock").string());
    const auto opened = attach_.sessions().open({.stream = "train", .group = "g", .client = "c"}, ::geteuid(),
                                                ring::monotonic_ns());
    attached_ = fuzz::connect_to(attach_.path());
    session_ = attach(attached_, opened.value().token).value().session;
  }

  void send(std::vector<std::string> frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      if (const auto at = frames[i].find("SESSION"); at != std::string::npos)
        frames[i].replace(at, 7, session_);
      client_.send(zmq::buffer(frames[i]),
                   i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
  /// Serves until a reply has come.
  wire::Reply reply() {
    for (int i = 0; i < 20'000; ++i) {
      control_.handle();
      zmq::message_t frame, more;
      if (!wire::through_signals([&] { return client_.recv(frame, zmq::recv_flags::dontwait); })) {
        zmq::pollitem_t item{client_.handle(), 0, ZMQ_POLLIN, 0};
        wire::through_signals(
            [&] { return zmq::poll(&item, 1, std::chrono::milliseconds(i < 200 ? 0 : 1)); });
        continue;
      }
      const std::string first = frame.to_string();
      for (bool next = frame.more(); next; next = more.more()) (void)!client_.recv(more);
      auto reply = wire::decode_reply(first);
      require(reply.has_value(), "a reply is well formed");
      return std::move(*reply);
    }
    require(false, "every message is answered");
    return {};
  }
  /// Attaches with a token that an input has opened, which can be done once, and detaches.
  void use(const std::string& token) {
    const UniqueFd socket = fuzz::connect_to(attach_.path());
    if (const auto reply = attach(socket, token))
      require(reply->cursor.batch < reply->length && reply->length <= reply->epoch_length,
              "a client begins at a batch of its epoch");
    require(!attach(fuzz::connect_to(attach_.path()), token), "a token is used once");
  }
  /// Until only the session of this target is left.
  void forget() { attach_.forget(1); }

 private:
  /// None: refused.
  std::optional<wire::AttachReply> attach(const UniqueFd& socket, const std::string& token) {
    fuzz::send_any(socket, std::string(wire::kAttachHello) + token);
    const auto answer = attach_.answer(socket);
    require(answer.has_value(), "a client with a token is answered");
    if (answer->bytes.starts_with("error ")) return std::nullopt;
    require(answer->bytes.starts_with("ok ") && answer->fds.size() == 4, "an answer is well formed");
    auto reply = wire::parse<wire::AttachReply>(json::parse(answer->bytes.substr(3), nullptr, false));
    require(reply.has_value(), "an attached client can read its reply");
    return std::move(*reply);
  }

  TempFolder folder_;
  std::unique_ptr<server::exec::Engine> engine_ = start_streams();
  fuzz::AttachSocket attach_{*engine_};
  UniqueFd attached_;
  std::string session_;
  server::metrics::Count bad_messages_;
  Control control_{*engine_, attach_.sessions(), [] { return json::object(); }, [] {}, bad_messages_};
  zmq::context_t context_{1};
  zmq::socket_t client_{context_, zmq::socket_type::dealer};
};

/// Checks the rules that hold for every reply.
void check(const wire::Reply& reply, const std::vector<std::string>& frames) {
  const auto request = wire::decode_request(frames[0]);
  if (frames.size() == 1 && request)
    require(reply.id == request->id, "a reply has the number of its request");
  if (frames.size() != 1 || !request) require(!reply.body, "a malformed request is refused");
  if (reply.body) return;
  require(!reply.body.error().message.empty(), "a refusal says why");
  require(reply.body.error().code != ErrorCode::kInternal, "no request is an internal error");
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  static Talk talk;
  fuzz::Input input(data, size);
  do {
    std::vector<std::string> frames;
    do frames.emplace_back(fuzz::text_of(input.take_piece()));
    while (!input.empty() && input.take<std::uint8_t>() % 2);
    talk.send(frames);
    const wire::Reply reply = talk.reply();
    check(reply, frames);
    if (!reply.body) continue;
    if (const auto token = reply.body->find("token"); token != reply.body->end())
      talk.use(token->get<std::string>());
  } while (!input.empty());
  talk.forget();
  talk.send({wire::encode(wire::Request{7, "streams", nlohmann::json::object()})});
  const wire::Reply good = talk.reply();
  require(good.id == 7 && good.body && good.body->at("streams").size() == 2,
          "a good request is served after a bad one");
  return 0;
}
