// The server's description of images that a device computes, as JSON. Only the types are checked here; the
// values are checked before they are used (clientlib/gpu/rows/plan.h).
#include <limits>

#include "clientlib/wire/object_reader.h"
#include "clientlib/wire/protocol.h"
#include "clientlib/wire/words.h"

namespace headrace::wire {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxChannels = 3;

/// Reads a signed 32-bit integer.
void read(ObjectReader& reader, std::string_view name, std::int32_t& out) {
  std::int64_t value = 0;
  reader.signed_integer(name, value);
  if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max())
    reader.refuse(name, "is too large");
  out = static_cast<std::int32_t>(value);
}

void read(ObjectReader& reader, std::string_view name, double& out) {
  const json* value = reader.member(name, true);
  if (value == nullptr) return;
  if (!value->is_number()) return reader.refuse(name, "is not a number");
  out = value->get<double>();
}

Result<void> number(const json& entry, double& out) {
  if (!entry.is_number())
    return fail(ErrorCode::kBadMessage, "image: a value in member 'mean', 'std' or 'erased' is not a number");
  out = entry.get<double>();
  return {};
}

json to_json(const Move& move) {
  return {{"kind", word_of(move.kind)},
          {"stage", move.stage},
          {"height", move.height},
          {"width", move.width},
          {"top", move.top},
          {"left", move.left},
          {"rows", move.rows},
          {"columns", move.columns},
          {"padding", word_of(move.padding)},
          {"fill", json::array({move.fill[0], move.fill[1], move.fill[2]})},
          {"p", move.p}};
}

Result<void> move_from_json(const json& in, Move& move) {
  ObjectReader reader(in, "move");
  reader.choice("kind", move.kind, move_from_word)
      .integer("stage", move.stage)
      .choice("padding", move.padding, padding_from_word);
  read(reader, "height", move.height);
  read(reader, "width", move.width);
  read(reader, "top", move.top);
  read(reader, "left", move.left);
  read(reader, "rows", move.rows);
  read(reader, "columns", move.columns);
  read(reader, "p", move.p);
  std::vector<std::uint8_t> fill;
  reader.list("fill", fill, kMaxChannels, [](const json& entry, std::uint8_t& value) -> Result<void> {
    if (!entry.is_number_unsigned() || entry.get<std::uint64_t>() > 255)
      return fail(ErrorCode::kBadMessage, "move: a value in member 'fill' is not a byte");
    value = entry.get<std::uint8_t>();
    return {};
  });
  std::copy(fill.begin(), fill.end(), move.fill);
  return reader.done();
}

}  // namespace

json to_json(const DeviceImage& value) {
  json moves = json::array();
  for (const Move& move : value.moves) moves.push_back(to_json(move));
  return {{"field", value.field},         {"height", value.height},
          {"width", value.width},         {"channels", value.channels},
          {"moves", std::move(moves)},    {"color_steps", value.color_steps},
          {"contrasts", value.contrasts}, {"layout", word_of(value.layout)},
          {"mean", value.mean},           {"std", value.std},
          {"erased", value.erased}};
}

Result<void> from_json(const json& in, DeviceImage& value) {
  value = {};
  constexpr auto kSide = static_cast<std::uint64_t>(kMaxDeviceSide);
  return ObjectReader(in, "image")
      .integer("field", value.field)
      .integer("height", value.height, kSide)
      .integer("width", value.width, kSide)
      .integer("channels", value.channels, kMaxChannels)
      .list("moves", value.moves, kMaxMoves, move_from_json)
      .integer("color_steps", value.color_steps, std::uint64_t{kMaxPixelSteps})
      .integer("contrasts", value.contrasts, std::uint64_t{kMaxPixelSteps})
      .choice("layout", value.layout, layout_from_word)
      .list("mean", value.mean, kMaxChannels, number)
      .list("std", value.std, kMaxChannels, number)
      .list("erased", value.erased, kMaxChannels, number)
      .done();
}

json to_json(const Residence& value) {
  json body = {{"upload", value.upload}, {"plan", value.plan}, {"seed", value.seed}};
  if (value.image) body["image"] = to_json(*value.image);
  return body;
}

Result<void> from_json(const json& in, Residence& value) {
  value = {};
  return ObjectReader(in, "residence")
      .name("upload", value.upload)
      .name("plan", value.plan)
      .integer("seed", value.seed)
      .optional_object("image", value.image)
      .done();
}

}  // namespace headrace::wire
