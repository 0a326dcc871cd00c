// Frames: the envelope around every body.
#include <fmt/format.h>

#include "clientlib/wire/object_reader.h"
#include "clientlib/wire/protocol.h"

namespace headrace::wire {
namespace {

using nlohmann::json;

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<json> parse_bounded(std::string_view frame, std::size_t largest) {
  if (frame.size() > largest)
    return fail(ErrorCode::kBadMessage,
                fmt::format("a frame has {} bytes, expected at most {}", frame.size(), largest));
  bool too_deep = false;
  const auto bound_depth = [&too_deep](int depth, json::parse_event_t event, json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth) too_deep = true;
    return !too_deep;
  };
  json value = json::parse(frame.begin(), frame.end(), bound_depth, false);
  if (too_deep)
    return fail(ErrorCode::kBadMessage, fmt::format("a frame is nested deeper than {} levels", kMaxDepth));
  if (value.is_discarded())
    return fail(ErrorCode::kBadMessage, fmt::format("a frame of {} bytes is not JSON", frame.size()));
  if (!value.is_object())
    return fail(ErrorCode::kBadMessage, fmt::format("a frame is not an object but {}", value.type_name()));
  return value;
}

Result<void> check_version(const json& frame) {
  std::int64_t version = 0;
  ObjectReader reader(frame, "frame");
  if (auto read = reader.signed_integer("v", version).done(); !read) return read;
  if (version != kProtocolVersion)
    return fail(
        ErrorCode::kVersionMismatch,
        fmt::format(
            "control protocol: the peer speaks version {}, this side version {}: install the same release on "
            "both sides",
            version, kProtocolVersion));
  return {};
}

}  // namespace

std::string encode(const Request& request) {
  return dump({{"v", kProtocolVersion}, {"id", request.id}, {"op", request.op}, {"body", request.body}});
}

Result<Request> decode_request(std::string_view frame) {
  auto value = parse_bounded(frame, kMaxFrame);
  if (!value) return fail(value.error());
  if (auto version = check_version(*value); !version) return fail(version.error());
  Request request;
  ObjectReader reader(*value, "request");
  reader.signed_integer("id", request.id).name("op", request.op);
  if (const auto* body = reader.member("body", false)) {
    if (body->is_object())
      request.body = *body;
    else
      reader.refuse("body", "is not an object");
  }
  if (auto read = reader.done(); !read) return fail(read.error());
  return request;
}

std::string encode(const Reply& reply) {
  json frame = {{"v", kProtocolVersion}, {"id", reply.id}};
  if (reply.body)
    frame["ok"] = *reply.body;
  else
    frame["error"] = {{"code", name_of(reply.body.error().code)}, {"message", reply.body.error().message}};
  return dump(frame);
}

Result<Reply> decode_reply(std::string_view frame) {
  auto value = parse_bounded(frame, kMaxReplyFrame);
  if (!value) return fail(value.error());
  if (auto version = check_version(*value); !version) return fail(version.error());
  Reply reply;
  ObjectReader reader(*value, "reply");
  reader.signed_integer("id", reply.id);
  const auto* ok = reader.member("ok", false);
  const auto* error = reader.member("error", false);
  if ((ok == nullptr) == (error == nullptr)) reader.refuse("ok", "or 'error' is needed, and not both");
  if (auto read = reader.done(); !read) return fail(read.error());
  if (ok != nullptr) {
    reply.body = *ok;
    return reply;
  }
  std::string code;
  std::string message;
  ObjectReader details(*error, "reply's error");
  if (auto read = details.name("code", code).text("message", message, kMaxReplyFrame).done(); !read)
    return fail(read.error());
  reply.body = fail(error_code_from_name(code), std::move(message));
  return reply;
}

}  // namespace headrace::wire
