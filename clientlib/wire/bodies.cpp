// Bodies of requests and replies.
#include <fmt/format.h>

#include "clientlib/wire/object_reader.h"
#include "clientlib/wire/protocol.h"
#include "clientlib/wire/words.h"

namespace headrace::wire {

using nlohmann::json;

namespace {

constexpr std::uint32_t kMaxWorld = 1 << 20;
constexpr std::uint32_t kMaxBatchSize = 1 << 24;
constexpr std::size_t kMaxFields = 64;
constexpr std::size_t kMaxDims = 6;
constexpr std::size_t kMaxClasses = 1 << 20;
constexpr std::size_t kMaxLanes = 4096;

}  // namespace

json to_json(const Cursor& value) {
  return {{"epoch", value.epoch}, {"origin", value.origin}, {"batch", value.batch}};
}

Result<void> from_json(const json& in, Cursor& value) {
  return ObjectReader(in, "cursor")
      .integer("epoch", value.epoch, kMaxCount)
      .integer("origin", value.origin, kMaxCount)
      .integer("batch", value.batch, kMaxCount)
      .done();
}

json to_json(const Fingerprint& value) {
  return {
      {"dataset", value.dataset}, {"plan", value.plan}, {"seed", value.seed}, {"algorithm", value.algorithm}};
}

Result<void> from_json(const json& in, Fingerprint& value) {
  return ObjectReader(in, "fingerprint")
      .name("dataset", value.dataset)
      .name("plan", value.plan)
      .name("seed", value.seed)
      .name("algorithm", value.algorithm)
      .done();
}

json to_json(const FieldSpec& value) {
  return {{"name", value.name},
          {"dtype", name_of(value.dtype)},
          {"kind", word_of(value.kind)},
          {"shape", value.shape},
          {"ragged_capacity", value.ragged_capacity}};
}

Result<void> from_json(const json& in, FieldSpec& value) {
  value.shape.clear();
  return ObjectReader(in, "field")
      .name("name", value.name)
      .choice("dtype", value.dtype, dtype_from_name)
      .choice("kind", value.kind, kind_from_word)
      .list("shape", value.shape, kMaxDims,
            [](const json& entry, std::int64_t& dim) -> Result<void> {
              if (!entry.is_number_integer() || entry.get<std::int64_t>() < 0 ||
                  entry.get<std::uint64_t>() > kMaxCount)
                return fail(ErrorCode::kBadMessage, "field: a value in member 'shape' is not a size");
              dim = entry.get<std::int64_t>();
              return {};
            })
      .integer("ragged_capacity", value.ragged_capacity, kMaxCount)
      .done();
}

json to_json(const HelloRequest& value) {
  return {{"client", value.client}, {"layout", value.layout}};
}

Result<void> from_json(const json& in, HelloRequest& value) {
  return ObjectReader(in, "hello request")
      .name("client", value.client)
      .integer("layout", value.layout)
      .done();
}

json to_json(const HelloReply& value) {
  return {
      {"server", value.server}, {"layout", value.layout}, {"instance", value.instance}, {"pid", value.pid}};
}

Result<void> from_json(const json& in, HelloReply& value) {
  return ObjectReader(in, "hello reply")
      .name("server", value.server)
      .integer("layout", value.layout)
      .integer("instance", value.instance)
      .signed_integer("pid", value.pid)
      .done();
}

namespace {

/// Checks that each entry names a different field, which exists and is an image.
Result<void> check_images(const StreamInfo& info) {
  for (std::size_t i = 0; i < info.on_device.size(); ++i) {
    const DeviceImage& image = info.on_device[i];
    if (image.field >= info.fields.size() || info.fields[image.field].shape.size() != 3 ||
        info.fields[image.field].kind != FieldKind::kDense ||
        (i > 0 && image.field <= info.on_device[i - 1].field))
      return fail(ErrorCode::kBadMessage,
                  fmt::format("stream '{}': member 'on_device' names field {}, which is not an image",
                              info.name, image.field));
  }
  return {};
}

}  // namespace

json to_json(const StreamInfo& value) {
  json fields = json::array(), on_device = json::array();
  for (const FieldSpec& field : value.fields) fields.push_back(to_json(field));
  for (const DeviceImage& image : value.on_device) on_device.push_back(to_json(image));
  json body = {{"name", value.name},
               {"delivery", word_of(value.delivery)},
               {"samples", value.samples},
               {"batch_size", value.batch_size},
               {"last", word_of(value.last)},
               {"shuffle", value.shuffle},
               {"fields", std::move(fields)},
               {"classes", value.classes},
               {"fingerprint", to_json(value.fingerprint)},
               {"live", value.live},
               {"on_device", std::move(on_device)}};
  if (value.residence) body["residence"] = to_json(*value.residence);
  return body;
}

Result<void> from_json(const json& in, StreamInfo& value) {
  value.fields.clear();
  value.classes.clear();
  value.on_device.clear();
  value.residence.reset();
  auto read = ObjectReader(in, "stream")
                  .name("name", value.name)
                  .choice("delivery", value.delivery, delivery_from_word)
                  .integer("samples", value.samples, kMaxCount)
                  .integer("batch_size", value.batch_size, kMaxBatchSize)
                  .choice("last", value.last, last_from_word)
                  .flag("shuffle", value.shuffle)
                  .list("fields", value.fields, kMaxFields,
                        [](const json& entry, FieldSpec& field) { return from_json(entry, field); })
                  .list("classes", value.classes, kMaxClasses,
                        [](const json& entry, std::string& name) -> Result<void> {
                          if (!entry.is_string())
                            return fail(ErrorCode::kBadMessage, "stream: a class name is not a string");
                          name = entry.get<std::string>();
                          return {};
                        })
                  .object("fingerprint", value.fingerprint)
                  .flag("live", value.live)
                  .list("on_device", value.on_device, kMaxFields,
                        [](const json& entry, DeviceImage& image) { return from_json(entry, image); })
                  .optional_object("residence", value.residence)
                  .done();
  return read ? check_images(value) : read;
}

json to_json(const Batching& value) {
  return {{"batch_size", value.batch_size}, {"last", word_of(value.last)}};
}

Result<void> from_json(const json& in, Batching& value) {
  return ObjectReader(in, "batching")
      .integer("batch_size", value.batch_size)
      .choice("last", value.last, last_from_word)
      .done();
}

json to_json(const OpenRequest& value) {
  json body = {{"stream", value.stream},      {"group", value.group},
               {"rank", value.rank},          {"world_size", value.world_size},
               {"client", value.client},      {"pid", value.pid},
               {"join", word_of(value.join)}, {"resume_server", value.resume_server}};
  if (value.start) body["start"] = to_json(*value.start);
  if (value.position) body["position"] = to_json(*value.position);
  if (value.fingerprint) body["fingerprint"] = to_json(*value.fingerprint);
  if (value.batching) body["batching"] = to_json(*value.batching);
  return body;
}

Result<void> from_json(const json& in, OpenRequest& value) {
  ObjectReader reader(in, "open request");
  reader.name("stream", value.stream)
      .name("group", value.group)
      .integer("rank", value.rank, kMaxWorld - 1)
      .integer("world_size", value.world_size, kMaxWorld)
      .name("client", value.client)
      .signed_integer("pid", value.pid)
      .choice("join", value.join, join_from_word)
      .flag("resume_server", value.resume_server)
      .optional_object("start", value.start)
      .optional_object("position", value.position)
      .optional_object("fingerprint", value.fingerprint)
      .optional_object("batching", value.batching);
  if (value.world_size == 0)
    reader.refuse("world_size", "is 0");
  else if (value.rank >= value.world_size)
    reader.refuse("rank", "is not below 'world_size'");
  return reader.done();
}

json to_json(const OpenReply& value) {
  return {{"token", value.token}, {"stream", to_json(value.stream)}};
}

Result<void> from_json(const json& in, OpenReply& value) {
  return ObjectReader(in, "open reply").name("token", value.token).object("stream", value.stream).done();
}

json to_json(const AttachReply& value) {
  return {{"lane", value.lane},
          {"seek", value.seek},
          {"cursor", to_json(value.cursor)},
          {"start", to_json(value.start)},
          {"length", value.length},
          {"epoch_length", value.epoch_length},
          {"max_leases", value.max_leases},
          {"session", value.session},
          {"batches_behind", value.batches_behind}};
}

Result<void> from_json(const json& in, AttachReply& value) {
  return ObjectReader(in, "attach reply")
      .integer("lane", value.lane)
      .integer("seek", value.seek)
      .object("cursor", value.cursor)
      .object("start", value.start)
      .integer("length", value.length, kMaxCount)
      .integer("epoch_length", value.epoch_length, kMaxCount)
      .integer("max_leases", value.max_leases)
      .name("session", value.session)
      .integer("batches_behind", value.batches_behind)
      .done();
}

json to_json(const DamagedSlot& value) {
  return {{"slot", value.slot}, {"generation", value.generation}};
}

Result<void> from_json(const json& in, DamagedSlot& value) {
  return ObjectReader(in, "damaged slot")
      .integer("slot", value.slot)
      .integer("generation", value.generation, kMaxCount)
      .done();
}

json to_json(const CursorSetRequest& value) {
  json out = {{"session", value.session}, {"cursor", to_json(value.cursor)}};
  if (value.damaged) out["damaged"] = to_json(*value.damaged);
  return out;
}

Result<void> from_json(const json& in, CursorSetRequest& value) {
  return ObjectReader(in, "cursor_set request")
      .name("session", value.session)
      .object("cursor", value.cursor)
      .optional_object("damaged", value.damaged)
      .done();
}

json to_json(const CursorSetReply& value) {
  return {{"seek", value.seek},
          {"cursor", to_json(value.cursor)},
          {"length", value.length},
          {"epoch_length", value.epoch_length}};
}

Result<void> from_json(const json& in, CursorSetReply& value) {
  return ObjectReader(in, "cursor_set reply")
      .integer("seek", value.seek)
      .object("cursor", value.cursor)
      .integer("length", value.length, kMaxCount)
      .integer("epoch_length", value.epoch_length, kMaxCount)
      .done();
}

json to_json(const FailureRequest& value) {
  return {{"session", value.session}};
}

Result<void> from_json(const json& in, FailureRequest& value) {
  return ObjectReader(in, "failure request").name("session", value.session).done();
}

json to_json(const FailureReply& value) {
  return {{"why", value.why}};
}

Result<void> from_json(const json& in, FailureReply& value) {
  return ObjectReader(in, "failure reply").text("why", value.why, kMaxReplyFrame).done();
}

json to_json(const CursorGetRequest& value) {
  return {{"stream", value.stream}, {"group", value.group}};
}

Result<void> from_json(const json& in, CursorGetRequest& value) {
  return ObjectReader(in, "cursor_get request")
      .name("stream", value.stream)
      .name("group", value.group)
      .done();
}

namespace {

json lane_to_json(const LaneCursor& lane) {
  return {{"rank", lane.rank},
          {"client", lane.client},
          {"attached", lane.attached},
          {"granted", to_json(lane.granted)},
          {"consumed", to_json(lane.consumed)}};
}

Result<void> lane_from_json(const json& in, LaneCursor& lane) {
  return ObjectReader(in, "lane")
      .integer("rank", lane.rank)
      .name("client", lane.client)
      .flag("attached", lane.attached)
      .object("granted", lane.granted)
      .object("consumed", lane.consumed)
      .done();
}

}  // namespace

json to_json(const CursorGetReply& value) {
  json lanes = json::array();
  for (const LaneCursor& lane : value.lanes) lanes.push_back(lane_to_json(lane));
  return {{"world_size", value.world_size}, {"start", to_json(value.start)}, {"lanes", std::move(lanes)}};
}

Result<void> from_json(const json& in, CursorGetReply& value) {
  value.lanes.clear();
  return ObjectReader(in, "cursor_get reply")
      .integer("world_size", value.world_size)
      .object("start", value.start)
      .list("lanes", value.lanes, kMaxLanes, lane_from_json)
      .done();
}

json to_json(const SampleRequest& value) {
  return {
      {"stream", value.stream}, {"epoch", value.epoch}, {"index", value.index}, {"picture", value.picture}};
}

Result<void> from_json(const json& in, SampleRequest& value) {
  return ObjectReader(in, "sample request")
      .name("stream", value.stream)
      .integer("epoch", value.epoch, kMaxCount)
      .integer("index", value.index, kMaxCount)
      .text("picture", value.picture)
      .done();
}

json to_json(const SampleReply& value) {
  json fields = json::array();
  for (const FieldSpec& field : value.fields) fields.push_back(to_json(field));
  return {{"sample_index", value.sample_index}, {"name", value.name},
          {"replaced", value.replaced},         {"label", value.label},
          {"fields", std::move(fields)},        {"parameters", value.parameters}};
}

Result<void> from_json(const json& in, SampleReply& value) {
  value.fields.clear();
  ObjectReader reader(in, "sample reply");
  reader.integer("sample_index", value.sample_index)
      .text("name", value.name)
      .flag("replaced", value.replaced)
      .signed_integer("label", value.label)
      .list("fields", value.fields, kMaxFields,
            [](const json& entry, FieldSpec& field) { return from_json(entry, field); });
  if (const auto* parameters = reader.member("parameters", true)) value.parameters = *parameters;
  return reader.done();
}

}  // namespace headrace::wire
