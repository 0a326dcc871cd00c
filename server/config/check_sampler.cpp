#include "server/config/check_sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/config/network.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

/// What belongs to each way of weighing: the first is needed, the second may be there.
struct Way {
  const char *by, *needs, *takes;
};
constexpr Way kWays[] = {{"class", "weights", "other"}, {"file", "path", "other"}, {"field", "field", ""}};

void check(const Document& document, const Pointer& at, const WeightedSampler& sampler,
           std::vector<Problem>& problems) {
  const json& given = document.value.at(at);
  const auto way = std::find_if(std::begin(kWays), std::end(kWays),
                                [&](const Way& each) { return given.at("by") == each.by; });
  if (!given.contains(way->needs))
    problems.push_back(document.at_key(
        at, fmt::format("key \"{}\" is missing: `by: {}` reads the weights from it", way->needs, way->by)));
  for (const char* key : {"weights", "path", "field", "other"})
    if (given.contains(key) && std::string_view(key) != way->needs && std::string_view(key) != way->takes)
      problems.push_back(
          document.at_key(at / key, fmt::format("has no meaning with `by: {}`; leave it out", way->by)));
  const auto& weights = sampler.weights;
  if (sampler.by == WeightedSampler::By::kClass && given.contains("weights") &&
      sampler.other.value_or(0) == 0 &&
      std::all_of(weights.begin(), weights.end(), [](const auto& each) { return each.second == 0; }))
    problems.push_back(document.at_value(at / "weights", "weights that sum to zero: give a class more"));
}

void check(const Document& document, const Pointer& at, const PkSampler& sampler, const StreamConfig& stream,
           std::vector<Problem>& problems) {
  const std::uint64_t group = std::uint64_t{sampler.classes} * sampler.per_class;
  const Pointer here = at / "sampler" / "pk";
  const Pointer size = at / "batch_size";
  if (stream.batch_size % group != 0) {
    auto message = fmt::format(
        "batches of {} hold no whole number of groups of p * k = {} * {} = {}: make batch_size a multiple of "
        "{}",
        stream.batch_size, sampler.classes, sampler.per_class, group, group);
    problems.push_back(document.value.contains(size) ? document.at_value(size, std::move(message))
                                                     : document.at_key(here, std::move(message)));
  }
  if (stream.delivery == Delivery::kShard && stream.last == LastBatch::kShort) {
    constexpr const char* kMessage =
        "`last: short` would cut the groups of pk where ranks divide the last batch: set `last: drop` or "
        "`last: pad`";
    const Pointer last = at / "last";
    problems.push_back(document.value.contains(last) ? document.at_value(last, kMessage)
                                                     : document.at_key(here, kMessage));
  }
}

}  // namespace

void check_sampler(const Document& document, const Pointer& at, const StreamConfig& stream,
                   std::vector<Problem>& problems) {
  const json& given = document.value.at(at);
  if (given.contains("sampler") && given.contains("shuffle"))
    problems.push_back(document.at_key(
        at / "shuffle", "`sampler` says the order, and `shuffle` is short for some of it: give one of them"));
  for (const char* kind : {"/sampler/weighted/path", "/sampler/list/path"})
    if (const Pointer path = at / Pointer(kind); document.value.contains(path))
      check_list(document, path, problems);
  if (!stream.sampler) return;
  if (const auto* weighted = std::get_if<WeightedSampler>(&*stream.sampler))
    check(document, at / "sampler" / "weighted", *weighted, problems);
  if (const auto* pk = std::get_if<PkSampler>(&*stream.sampler)) check(document, at, *pk, stream, problems);
}

}  // namespace headrace::server::config
