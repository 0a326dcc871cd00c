#include <fmt/format.h>

#include <algorithm>

#include "clientlib/client/resume.h"
#include "clientlib/wire/object_reader.h"
#include "clientlib/wire/protocol.h"

namespace headrace {
namespace {

constexpr std::uint32_t kStateVersion = 1;
constexpr std::uint32_t kMostRanks = 1 << 20;
constexpr std::uint32_t kLargestBatch = 1 << 24;

/// The path of the first member of `found` that `known` lacks, such as "cursor.step"; nullopt: there is none.
std::optional<std::string> unknown_member(const nlohmann::json& found, const nlohmann::json& known) {
  for (const auto& [name, value] : found.items()) {
    const auto same = known.find(name);
    if (same == known.end()) return name;
    if (same->is_object())
      if (const auto inner = unknown_member(value, *same)) return fmt::format("{}.{}", name, *inner);
  }
  return std::nullopt;
}

}  // namespace

std::string State::to_json() const {
  return nlohmann::json{{"version", kStateVersion},        {"stream", stream},
                        {"cursor", wire::to_json(cursor)}, {"batch_size", batch_size},
                        {"world_size", world_size},        {"fingerprint", wire::to_json(fingerprint)}}
      .dump();
}

Result<State> State::from_json(std::string_view text) {
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded())
    return fail(ErrorCode::kInvalidArgument,
                "the state is not JSON; give what state() (Python: state_dict()) returned");
  State state;
  std::uint32_t version = 0;
  wire::ObjectReader reader(json, "state");
  reader.integer("version", version);
  if (reader.done() && version != kStateVersion)
    return fail(
        ErrorCode::kVersionMismatch,
        fmt::format("the state has version {}, expected {}; use the version of Headrace that saved it",
                    version, kStateVersion));
  reader.name("stream", state.stream)
      .object("cursor", state.cursor)
      .integer("batch_size", state.batch_size, kLargestBatch)
      .integer("world_size", state.world_size, kMostRanks)
      .object("fingerprint", state.fingerprint);
  if (auto read = reader.done(); !read)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("not a state ({}): give what state() (Python: state_dict()) returned",
                            read.error().message));
  // The version changes with the members, so these are not of another Headrace.
  if (const auto unknown = unknown_member(json, nlohmann::json::parse(state.to_json())))
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("state: unknown member {}; give what state() (Python: state_dict()) returned, and "
                    "save values of your own beside it",
                    nlohmann::json(*unknown).dump()));
  if (state.batch_size == 0 || state.world_size == 0)
    return fail(ErrorCode::kInvalidArgument, "state: batch_size or world_size is 0");
  return state;
}

namespace client {

Result<Cursor> resume_cursor(const State& state, const StreamInfo& stream, std::uint32_t world_size) {
  if (const auto changed = difference(stream.fingerprint, state.fingerprint); !changed.empty())
    return fail(
        ErrorCode::kFingerprintMismatch,
        state.stream == stream.name
            ? fmt::format("stream '{}': the {} changed since the state was saved; undo that, or start "
                          "without the state",
                          stream.name, changed)
            : fmt::format("stream '{}': the state is of stream '{}', and the {} differs: load it into a "
                          "loader of that "
                          "stream, or start without the state",
                          stream.name, state.stream, changed));
  const std::uint64_t rows = std::uint64_t{state.batch_size} * state.world_size;
  Cursor cursor = state.cursor;
  if (cursor.origin > stream.samples || cursor.batch > (stream.samples - cursor.origin) / rows + 1)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("state: {} is beyond an epoch of {} samples in batches of {}", to_string(cursor),
                            stream.samples, rows));
  if (state.batch_size != stream.batch_size || state.world_size != world_size) {
    cursor = {cursor.epoch, position_after(stream.samples, cursor.origin, cursor.batch, rows), 0};
  }
  if (cursor.origin >= stream.samples) cursor = {cursor.epoch + 1, 0, 0};
  return cursor;
}

}  // namespace client
}  // namespace headrace
