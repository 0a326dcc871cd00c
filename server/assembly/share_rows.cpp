#include "server/assembly/share_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/transform/chain_parts.h"
#include "server/transform/op.h"

namespace headrace::server::assembly {
namespace {

/// The part of the memory that is left which all windows without a size take together.
constexpr std::uint64_t kPartOfMemory = 8;

struct Group {
  std::string key;
  std::vector<const Sharer*> streams;
  std::size_t transforms = 0;
};

/// Equal for streams whose rows are made of the same samples, apart from their transforms.
nlohmann::json key_of(const config::StreamConfig& stream) {
  nlohmann::json key = config::canonical(stream);
  for (const char* own : {"transforms", "output", "mix"}) key.erase(own);
  key["source"] = stream.source;
  return key;
}

bool same(const transform::Transform& one, const transform::Transform& other) {
  return one->name() == other->name() && one->arguments() == other->arguments();
}

/// How many transforms both chains have in common that images may be shared after.
std::size_t common(const transform::StreamPlan& one, const transform::StreamPlan& other) {
  const auto& a = one.chain.transforms;
  const auto& b = other.chain.transforms;
  const auto only = [](const transform::StreamPlan& plan, std::size_t i) {
    return i < plan.only.size() ? plan.only[i] : std::vector<std::string>{};
  };
  std::size_t count = 0;
  while (count < a.size() && count < b.size() && same(a[count], b[count]) &&
         only(one, count) == only(other, count))
    ++count;
  return count;
}

std::optional<exec::SharedFields> fields_of(const Sharer& sharer, std::size_t transforms) {
  return exec::share_fields(sharer.maker->source(), sharer.maker->plans(), transforms);
}

/// The most transforms after which this stream's own lanes can share images.
std::size_t most_of(const Sharer& sharer) {
  std::size_t most = transform::shareable_transforms(sharer.config->plan.chain.transforms);
  for (const exec::FieldPlan& plan : sharer.maker->plans())
    if (plan.plan) most = std::min(most, plan.ring_chain.transforms.size());
  return most;
}

bool keeps_no_rows(const Sharer& sharer) {
  return sharer.config->sharing.window == 0;
}

bool join(Group& group, const Sharer& sharer, std::size_t most) {
  const std::size_t transforms =
      std::min({group.transforms, most, common(group.streams.front()->config->plan, sharer.config->plan)});
  if (!fields_of(sharer, transforms)) return false;
  for (const Sharer* other : group.streams)
    if (!fields_of(*other, transforms)) return false;
  group.transforms = transforms;
  group.streams.push_back(&sharer);
  return true;
}

std::vector<Group> group(const std::vector<Sharer>& streams) {
  std::vector<Group> groups;
  for (const Sharer& sharer : streams) {
    if (keeps_no_rows(sharer) || sharer.maker->keeps_decoded()) continue;
    const std::string key = key_of(*sharer.config).dump();
    const std::size_t most = most_of(sharer);
    const bool joined = std::any_of(groups.begin(), groups.end(), [&](Group& other) {
      return other.key == key && join(other, sharer, most);
    });
    if (!joined && fields_of(sharer, most)) groups.push_back({key, {&sharer}, most});
  }
  return groups;
}

std::optional<std::uint64_t> given_window(const Group& group) {
  std::optional<std::uint64_t> most;
  for (const Sharer* sharer : group.streams)
    if (const auto& window = sharer->config->sharing.window) most = std::max(most.value_or(0), *window);
  return most;
}

/// Why streams with these fields share no rows.
std::string why_unshared(const exec::SampleMaker& maker) {
  if (maker.keeps_decoded()) return "their source has a `decoded` cache";
  bool decodes = false;
  for (const exec::FieldPlan& field : maker.plans()) {
    if (!field.plan && field.spec.kind != FieldKind::kDense)
      return fmt::format("field `{}` is ragged", field.spec.name);
    decodes |=
        field.plan && maker.source().fields()[field.source_field].content == source::Content::kEncodedImage;
  }
  return decodes ? "no transform gives all images one size" : "their rows cost little to make";
}

}  // namespace

std::string why_apart(const Compared& one, const Compared& other) {
  const nlohmann::json a = key_of(one.config), b = key_of(other.config);
  std::vector<std::string> keys;
  for (const nlohmann::json* const from : {&a, &b})
    for (const auto& [key, value] : from->items())
      if (a.value(key, nlohmann::json()) != b.value(key, nlohmann::json()) &&
          std::find(keys.begin(), keys.end(), key) == keys.end())
        keys.push_back(key);
  if (std::find(keys.begin(), keys.end(), "part") != keys.end()) return {};
  if (!keys.empty()) return fmt::format("{} differ{}", fmt::join(keys, ", "), keys.size() == 1 ? "s" : "");
  for (const Compared* const each : {&one, &other})
    if (each->config.sharing.window == 0) return fmt::format("{} sets `sharing.window: 0B`", each->stream);
  const transform::StreamPlan &plan = one.config.plan, &other_plan = other.config.plan;
  const std::size_t same = common(plan, other_plan);
  if (same < std::max(plan.chain.transforms.size(), other_plan.chain.transforms.size()))
    return fmt::format("their transforms differ from number {} on", same + 1);
  for (const Compared* const each : {&one, &other})
    if (each->config.resident) return fmt::format("{} has `residence: gpu`", each->stream);
  return why_unshared(one.maker);
}

std::vector<SharingGroup> share_rows(const std::vector<Sharer>& streams, std::uint64_t left) {
  const std::vector<Group> groups = group(streams);
  for (const Group& group : groups) left -= std::min(left, given_window(group).value_or(0));
  const auto without =
      std::count_if(groups.begin(), groups.end(), [](const Group& group) { return !given_window(group); });
  const std::uint64_t chosen =
      left / kPartOfMemory / static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(without, 1));
  std::vector<SharingGroup> out;
  for (const Group& group : groups) {
    SharingGroup& made = out.emplace_back();
    made.transforms = group.transforms;
    if (group.streams.size() > 1) made.gate = std::make_shared<exec::StartGate>();
    std::uint32_t number = 0;
    for (const Sharer* sharer : group.streams) {
      auto fields = fields_of(*sharer, group.transforms);
      if (!made.window) {
        const std::uint64_t positions = sharer->maker->size();
        const std::uint64_t bytes = given_window(group).value_or(chosen);
        made.window = std::make_shared<exec::RowWindow>(bytes, fields->row_bytes, positions,
                                                        static_cast<std::uint32_t>(group.streams.size()));
      }
      sharer->maker->share(std::move(*fields), made.window, number++);
      made.streams.push_back(sharer->stream);
    }
  }
  for (const Sharer& sharer : streams)
    if (keeps_no_rows(sharer) && !sharer.maker->keeps_decoded() && fields_of(sharer, most_of(sharer)))
      out.push_back({.streams = {sharer.stream}});
  return out;
}

}  // namespace headrace::server::assembly
