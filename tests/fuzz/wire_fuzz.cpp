// Control messages of both directions (clientlib/wire), and the states that trainers save: what is read can
// be written, and is then read as the same. Anything else is refused by name.
#include "clientlib/wire/protocol.h"
#include "headrace/client.h"
#include "tests/fuzz/fuzz.h"

namespace headrace::wire {
namespace {

using nlohmann::json;

void require_named(const Error& error) {
  require(error.code == ErrorCode::kBadMessage || error.code == ErrorCode::kVersionMismatch,
          "a message is refused as malformed or for its version");
  require(!error.message.empty(), "a refusal says why");
}

template <class T>
void read_body(const json& body) {
  const auto value = parse<T>(body);
  if (!value) return require_named(value.error());
  const json written = to_json(*value);
  const auto again = parse<T>(written);
  require(again && to_json(*again) == written, "a body is read as it was written");
}

template <class... Bodies>
void read_bodies(const json& body) {
  (read_body<Bodies>(body), ...);
}

void read_request(std::string_view frame) {
  const auto request = decode_request(frame);
  if (!request) return require_named(request.error());
  const auto again = decode_request(encode(*request));
  require(again && again->id == request->id && again->op == request->op && again->body == request->body,
          "a request is read as it was written");
  read_bodies<HelloRequest, OpenRequest, CursorSetRequest, FailureRequest, CursorGetRequest, SampleRequest>(
      request->body);
}

void read_reply(std::string_view frame) {
  const auto reply = decode_reply(frame);
  if (!reply) return require_named(reply.error());
  const auto again = decode_reply(encode(*reply));
  require(again && again->id == reply->id && again->body.has_value() == reply->body.has_value(),
          "a reply is read as it was written");
  if (!reply->body) {
    require(again->body.error().message == reply->body.error().message, "an error keeps its message");
    return;
  }
  require(*again->body == *reply->body, "a reply keeps its body");
  read_bodies<HelloReply, StreamInfo, OpenReply, AttachReply, CursorSetReply, FailureReply, CursorGetReply,
              SampleReply, Residence>(*reply->body);
}

void read_state(std::string_view text) {
  const auto state = State::from_json(text);
  if (!state) return require(!state.error().message.empty(), "a refusal says why");
  const auto again = State::from_json(state->to_json());
  require(again && again->to_json() == state->to_json(), "a state is read as it was written");
}

}  // namespace
}  // namespace headrace::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto frame = headrace::fuzz::text_of({data, size});
  headrace::wire::read_request(frame);
  headrace::wire::read_reply(frame);
  headrace::wire::read_state(frame);
  return 0;
}
