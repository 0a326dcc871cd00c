// How a server tells of a resident set. What the numbers mean is checked by whoever computes with them
// (clientlib/gpu/resident/plan.h).
#include <limits>

#include "clientlib/wire/object_reader.h"
#include "clientlib/wire/protocol.h"
#include "clientlib/wire/words.h"

namespace headrace::wire {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxChannels = 3;

/// Whole numbers that may be negative, of 32 bits.
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
  if (!entry.is_number()) return fail(ErrorCode::kBadMessage, "residence: not a number");
  out = entry.get<double>();
  return {};
}

json to_json(const ResidentStep& step) {
  return {{"kind", word_of(step.kind)},
          {"stage", step.stage},
          {"height", step.height},
          {"width", step.width},
          {"top", step.top},
          {"left", step.left},
          {"rows", step.rows},
          {"columns", step.columns},
          {"padding", word_of(step.padding)},
          {"fill", json::array({step.fill[0], step.fill[1], step.fill[2]})},
          {"p", step.p}};
}

Result<void> step_from_json(const json& in, ResidentStep& step) {
  ObjectReader reader(in, "step");
  reader.choice("kind", step.kind, step_from_word)
      .integer("stage", step.stage)
      .choice("padding", step.padding, padding_from_word);
  read(reader, "height", step.height);
  read(reader, "width", step.width);
  read(reader, "top", step.top);
  read(reader, "left", step.left);
  read(reader, "rows", step.rows);
  read(reader, "columns", step.columns);
  read(reader, "p", step.p);
  std::vector<std::uint8_t> fill;
  reader.list("fill", fill, kMaxChannels, [](const json& entry, std::uint8_t& value) -> Result<void> {
    if (!entry.is_number_unsigned() || entry.get<std::uint64_t>() > 255)
      return fail(ErrorCode::kBadMessage, "step: member 'fill' holds something else than bytes");
    value = entry.get<std::uint8_t>();
    return {};
  });
  std::copy(fill.begin(), fill.end(), step.fill);
  return reader.done();
}

}  // namespace

json to_json(const Residence& value) {
  json steps = json::array();
  for (const ResidentStep& step : value.steps) steps.push_back(to_json(step));
  return {{"upload", value.upload},
          {"plan", value.plan},
          {"seed", value.seed},
          {"image", value.image},
          {"height", value.height},
          {"width", value.width},
          {"channels", value.channels},
          {"stored", name_of(value.stored)},
          {"layout", word_of(value.layout)},
          {"mean", value.mean},
          {"std", value.std},
          {"steps", std::move(steps)}};
}

Result<void> from_json(const json& in, Residence& value) {
  value = {};
  ObjectReader reader(in, "residence");
  reader.name("upload", value.upload)
      .name("plan", value.plan)
      .integer("seed", value.seed)
      .name("image", value.image)
      .choice("stored", value.stored, dtype_from_name)
      .choice("layout", value.layout, layout_from_word)
      .list("mean", value.mean, kMaxChannels, number)
      .list("std", value.std, kMaxChannels, number)
      .list("steps", value.steps, kMaxResidentSteps, step_from_json);
  read(reader, "height", value.height);
  read(reader, "width", value.width);
  read(reader, "channels", value.channels);
  return reader.done();
}

}  // namespace headrace::wire
