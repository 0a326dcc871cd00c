// Control protocol v1: JSON over ZeroMQ (DEALER -> ROUTER), one request frame, one reply frame, for `sample`
// one more binary frame behind the reply. No ZeroMQ here, so that the codec can be tested and fuzzed alone.
//
//   request   {"v":1, "id":7, "op":"open", "body":{...}}
//   reply     {"v":1, "id":7, "ok":{...}}
//        or   {"v":1, "id":7, "error":{"code":"NO_SUCH_STREAM","message":"..."}}
//
// Names in requests are keys into the server's configuration, never paths.
// Replies without a struct here: streams {"streams":[StreamInfo, ...]}; stats: any object; drain: {}.
//
// To attach, a client that has a token from `open` connects to <directory>/attach.sock (SOCK_SEQPACKET). It
// sends one packet, "headrace-attach 1 <token>", with its own pidfd as the only descriptor (or none if
// pidfd_open is refused). The server takes a lane for it, and answers with one packet: "ok <AttachReply>" and
// four descriptors (data, control, lease, doorbell), or "error <CODE> <message>". The socket stays open: it
// is the session, which ends when the socket closes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/cursor.h"
#include "headrace/error.h"
#include "headrace/field.h"
#include "headrace/stream_info.h"

namespace headrace::wire {

inline constexpr int kProtocolVersion = 1;
inline constexpr std::uint32_t kMostBehind = 1000;  ///< batches; a client's lag is counted no further
inline constexpr std::size_t kMaxFrame =
    64 * 1024;  ///< of a request in bytes; larger ones are dropped and counted
inline constexpr std::size_t kMaxReplyFrame = 4 * 1024 * 1024;
inline constexpr int kMaxDepth = 16;  ///< of JSON nesting
inline constexpr std::string_view kAttachHello = "headrace-attach 1 ";
inline constexpr std::string_view kAttachGoodbye =
    "goodbye";  ///< a client closes its stream; killed ones send nothing
inline constexpr const char* kControlSocket = "control.sock";
inline constexpr const char* kAttachSocket = "attach.sock";

struct Request {
  std::int64_t id = 0;
  std::string op;  ///< hello streams open cursor_get cursor_set failure stats sample drain
  nlohmann::json body = nlohmann::json::object();
};
std::string encode(const Request& request);
/// kBadMessage for anything malformed; kVersionMismatch, which names both versions, for another "v".
Result<Request> decode_request(std::string_view frame);

struct Reply {
  std::int64_t id = 0;
  Result<nlohmann::json> body;
};
std::string encode(const Reply& reply);
Result<Reply> decode_reply(std::string_view frame);

// --- bodies. Each has to_json and a checked from_json: kBadMessage names the member that is missing or of
// the wrong type.

struct HelloRequest {
  std::string client;        ///< version of the client library
  std::uint32_t layout = 0;  ///< ring layout version
};
struct HelloReply {
  std::string server;  ///< version
  std::uint32_t layout = 0;
  std::uint64_t instance = 0;  ///< differs for each server start
  std::int64_t pid = 0;
};

/// How batches are counted.
struct Batching {
  std::uint32_t batch_size = 0;
  LastBatch last = LastBatch::kShort;
  bool operator==(const Batching&) const = default;
};
struct OpenRequest {
  std::string stream;
  std::string group;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string client;  ///< name shown in metrics; unique within a stream
  std::int64_t pid = 0;
  Join join = Join::kDefault;
  /// The group's start cursor: the same on each rank, constant over re-attachments.
  std::optional<Cursor> start;
  std::optional<Cursor> position;          ///< re-attach within one process: the next batch to fetch
  bool resume_server = false;              ///< resume from the server's memory of the group
  std::optional<Fingerprint> fingerprint;  ///< expected; a difference is kFingerprintMismatch
  std::optional<Batching>
      batching;  ///< the batching of `position`; a difference is also kFingerprintMismatch
};
/// Holds nothing for the client: that begins when it attaches.
struct OpenReply {
  std::string token;  ///< single use, valid for a few seconds
  StreamInfo stream;
};
/// Behind the "ok " of the attach socket's answer.
struct AttachReply {
  std::uint32_t lane = 0;
  std::uint32_t seek = 0;
  Cursor start;              ///< the group's start, as resolved; the client repeats it when it attaches again
  Cursor cursor;             ///< the lane's first batch
  std::uint64_t length = 0;  ///< batches in the epoch of `cursor`, counted from its origin
  std::uint64_t epoch_length = 0;  ///< batches in a whole epoch
  std::uint32_t max_leases = 0;
  std::string session;  ///< names this attachment in cursor_set and failure
  /// How many batches it begins behind the foremost client of another group, or on a stream without clients
  /// behind that of the streams that share rows, counted up to kMostBehind. 0: it is not far behind, the
  /// client has chosen where to begin, or the stream is a feed.
  std::uint32_t batches_behind = 0;
};

/// A slot that a client holds and that its checksum does not match.
struct DamagedSlot {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
};
struct CursorSetRequest {
  std::string session;
  Cursor cursor;
  std::optional<DamagedSlot> damaged;  ///< its batch is made again, for all clients
};
struct CursorSetReply {
  std::uint32_t seek = 0;  ///< grants with another seek are stale
  Cursor cursor;           ///< the cursor that was set, normalized (past the end: next epoch)
  std::uint64_t length = 0;
  std::uint64_t epoch_length = 0;
};

/// Sent by a client whose lane is kLaneFailed.
struct FailureRequest {
  std::string session;
};
struct FailureReply {
  std::string why;  ///< the message of kStreamFailed; empty: the lane still receives batches
};

struct CursorGetRequest {
  std::string stream;
  std::string group;
};
struct LaneCursor {
  std::uint32_t rank = 0;
  std::string client;
  bool attached = false;
  Cursor granted;   ///< next batch that will be granted
  Cursor consumed;  ///< next batch after the committed ones
};
struct CursorGetReply {
  std::uint32_t world_size = 1;
  Cursor start;
  std::vector<LaneCursor> lanes;
};

struct SampleRequest {
  std::string stream;
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;  ///< position within the epoch's order
  std::string picture;      ///< an image field that the reply is to show; empty: none
};
/// A binary frame follows in the message: the row's fields, end to end, in the order of `fields`, or the PNG
/// file of SampleRequest::picture.
struct SampleReply {
  std::uint64_t sample_index = 0;  ///< within the source
  std::string name;                ///< path within the source
  bool replaced = false;
  std::int64_t label = 0;
  std::vector<FieldSpec> fields;
  nlohmann::json parameters;  ///< see server/transform/plan.h
};

#define HEADRACE_WIRE_BODY(T)             \
  nlohmann::json to_json(const T& value); \
  Result<void> from_json(const nlohmann::json& json, T& value)
HEADRACE_WIRE_BODY(Cursor);
HEADRACE_WIRE_BODY(Fingerprint);
HEADRACE_WIRE_BODY(FieldSpec);
HEADRACE_WIRE_BODY(HelloRequest);
HEADRACE_WIRE_BODY(HelloReply);
HEADRACE_WIRE_BODY(DeviceImage);
HEADRACE_WIRE_BODY(Residence);
HEADRACE_WIRE_BODY(StreamInfo);
HEADRACE_WIRE_BODY(Batching);
HEADRACE_WIRE_BODY(OpenRequest);
HEADRACE_WIRE_BODY(OpenReply);
HEADRACE_WIRE_BODY(AttachReply);
HEADRACE_WIRE_BODY(DamagedSlot);
HEADRACE_WIRE_BODY(CursorSetRequest);
HEADRACE_WIRE_BODY(CursorSetReply);
HEADRACE_WIRE_BODY(FailureRequest);
HEADRACE_WIRE_BODY(FailureReply);
HEADRACE_WIRE_BODY(CursorGetRequest);
HEADRACE_WIRE_BODY(CursorGetReply);
HEADRACE_WIRE_BODY(SampleRequest);
HEADRACE_WIRE_BODY(SampleReply);
#undef HEADRACE_WIRE_BODY

template <class T>
Result<T> parse(const nlohmann::json& json) {
  T value;
  if (auto read = from_json(json, value); !read) return tl::make_unexpected(read.error());
  return value;
}

}  // namespace headrace::wire
