// Checks across the keys of a stream, and between streams and sources.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "clientlib/base/nearest.h"
#include "server/config/plan_keys.h"
#include "server/config/read.h"
#include "server/transform/resident_steps.h"

namespace headrace::server::config {

using namespace described;

namespace {

/// For `source: photos.train`.
std::string part_hint(const std::string& source, const std::vector<std::string>& names) {
  const auto dot = source.find('.');
  if (dot == std::string::npos || std::find(names.begin(), names.end(), source.substr(0, dot)) == names.end())
    return {};
  return fmt::format("; for a part of one, write `source: {}` and `part: {}`", source.substr(0, dot),
                     source.substr(dot + 1));
}

/// The source that the stream names; null: it does not exist, or is invalid itself.
const SourceConfig* check_source(const StreamConfig& stream, const Reading& reading, const Config& config,
                                 const std::vector<std::string>* all) {
  if (stream.source.empty() || all == nullptr) return nullptr;
  const auto& names = *all;
  if (std::find(names.begin(), names.end(), stream.source) == names.end())
    reading.wrong("source",
                  names.empty() ? fmt::format("there is no source \"{}\", nor any other", stream.source)
                                : fmt::format("there is no source \"{}\"; sources: {}{}", stream.source,
                                              fmt::join(names, ", "), part_hint(stream.source, names)),
                  nearest(stream.source, names));
  const auto found = config.sources.find(stream.source);
  return found == config.sources.end() ? nullptr : &found->second;
}

void check_part(const StreamConfig& stream, const SourceConfig& source, const Json& map,
                const Reading& reading) {
  const bool given = map.contains("part");
  if (!source.split) {
    if (given)
      reading.wrong_key(
          "part",
          fmt::format("source \"{}\" has no split, so no parts; leave this out, or split it", stream.source));
    return;
  }
  const auto names = source::part_names(*source.split);
  if (!given) {
    reading.wrong_key("", fmt::format("key \"part\" is missing: source \"{}\" is split into {}",
                                      stream.source, fmt::join(names, ", ")));
  } else if (std::find(names.begin(), names.end(), stream.part) == names.end()) {
    reading.wrong("part",
                  fmt::format("source \"{}\" has no part \"{}\"; parts: {}", stream.source, stream.part,
                              fmt::join(names, ", ")),
                  nearest(stream.part, names));
  }
}

/// Requires that none of `keys` is given.
template <class S>
void refuse(const std::vector<Key<S>>& keys, const std::set<std::string>& but, const char* why,
            const Json& map, const Reading& reading) {
  for (const Key<S>& key : keys)
    if (!but.contains(key.name) && map.contains(key.name)) reading.wrong_key(key.name, why);
}

/// Refuses keys that the feeder decides, or that would need a batch twice.
void check_fed(const StreamConfig& stream, const Json& map, const Reading& reading, const Config& config) {
  refuse(description_of<StreamConfig>().keys, {"source", "part", "fields", "ring", "sharing"},
         "the source is a feed: its batches come as they are, in its order; leave this out", map, reading);
  const Pointer on_lag("/sharing/on_lag");
  if (map.contains(on_lag) && map.at(on_lag) == "detach")
    reading.wrong(on_lag,
                  "the source is a feed, which cannot give a batch twice: clients wait for each other");
  for (const auto& [name, other] : config.streams)
    if (other.source == stream.source)
      reading.wrong("source",
                    fmt::format("feed \"{}\" is stream \"{}\"'s already: each of its batches comes once",
                                stream.source, name));
}

void check_sharing(const StreamConfig& stream, const Json& map, const Reading& reading) {
  const auto& sharing = stream.sharing;
  for (const char* key : {"max_lag", "on_lag", "patience"})
    if (const Pointer at = Pointer("/sharing") / key; stream.delivery == Delivery::kShard && map.contains(at))
      reading.wrong_key(at,
                        "applies only to broadcast streams, because ranks of a shard stream share no slots: "
                        "remove it; if `extends` inherits it, write an empty key here");
  if (stream.delivery == Delivery::kBroadcast && sharing.on_lag == OnLag::kWait)
    if (const Pointer at("/sharing/patience"); map.contains(at))
      reading.wrong_key(
          at,
          "applies only with `on_lag: detach`, because with `wait` all clients wait for the slowest: remove "
          "it; if `extends` inherits it, write an empty key here");
  if (const Pointer at("/sharing/wait_timeout");
      map.contains(at) && !map.contains(Pointer("/sharing/wait_for")))
    reading.wrong_key(at,
                      "applies only with `wait_for`, without which no client waits for others: set "
                      "`wait_for`, or remove it; if `extends` inherits it, write an empty key here");
  if (sharing.wait_for > 1 && sharing.wait_timeout.count() == 0)
    reading.wrong("sharing/wait_timeout",
                  fmt::format("0s: no client would wait for the {} clients of wait_for. Raise it, or remove "
                              "wait_for",
                              sharing.wait_for));
  if (sharing.max_lag > stream.ring.prefetch)
    reading.wrong("sharing/max_lag",
                  fmt::format("{} is more than ring.prefetch, which is {}: raise ring.prefetch, or lower "
                              "max_lag",
                              sharing.max_lag, stream.ring.prefetch));
}

void check_groups(const PkSampler& sampler, const StreamConfig& stream, const Json& map,
                  const Reading& reading) {
  const std::uint64_t group = std::uint64_t{sampler.classes} * sampler.per_class;
  const auto wrong = [&](const char* key, std::string message) {
    if (map.contains(key)) {
      reading.wrong(key, std::move(message));
    } else {
      reading.wrong_key("sampler/pk", std::move(message));
    }
  };
  if (stream.batch_size % group != 0)
    wrong("batch_size",
          fmt::format(
              "batches of {0} hold no whole number of groups of p * k = {1} * {2} = {3}: make batch_size a "
              "multiple of {3}",
              stream.batch_size, sampler.classes, sampler.per_class, group));
  if (stream.delivery == Delivery::kShard && stream.last == LastBatch::kShort)
    wrong("last",
          "`last: short` would cut the groups of pk where ranks divide the last batch: set `last: drop` or "
          "`last: pad`");
}

void check_sampler(const StreamConfig& stream, const Json& map, const Reading& reading) {
  if (map.contains("sampler") && map.contains("shuffle"))
    reading.wrong_key("shuffle", "`shuffle` is a short form of `sampler`: give only one of them");
  if (!stream.sampler) return;
  if (const auto* pk = std::get_if<PkSampler>(&*stream.sampler);
      pk != nullptr && reading.sound({"batch_size", "delivery", "last"}))
    check_groups(*pk, stream, map, reading);
}

/// Image sizes are checked when the source is open.
void check_residence(const StreamConfig& stream, const Json& map, const Reading& reading) {
  if (!stream.resident) return;
  if (stream.sampler && map.contains("sampler"))
    reading.wrong_key("sampler",
                      "with `residence` the device computes the order, and supports only `shuffled` and "
                      "`sequential`: use one of them, or leave `residence` out");
  if (stream.plan.mix)
    reading.wrong_key(
        "mix",
        "with `residence` the device computes rows and cannot mix them: mix them in the trainer, or "
        "leave `residence` out");
  if (!stream.plan.derived.empty())
    reading.wrong_key(
        "derive",
        "a dataset in GPU memory has one image per sample, and no images derived from it: leave `derive` or "
        "`residence` out");
  if (stream.plan.on_device)
    reading.wrong_key(
        "device",
        "with `residence` the device computes every batch, and `device` is only for images that come "
        "through the ring: leave one of the two out");
  if (const auto obstacle = transform::resident_obstacle(stream.plan.chain))
    reading.wrong(Pointer("/transforms") / std::to_string(obstacle->transform), obstacle->why);
}

}  // namespace

void apply_feed(const Config& config, StreamConfig& stream) {
  const auto source = config.sources.find(stream.source);
  if (source == config.sources.end() || source->second.feed() == nullptr) return;
  stream.batch_size = source->second.feed()->batch_size;
  stream.shuffle = false;
  stream.sharing.on_lag = OnLag::kWait;
}

void check_stream(const StreamConfig& stream, const Json& value, const Reading& reading, const Config& config,
                  const std::vector<std::string>* sources) {
  const SourceConfig* source = check_source(stream, reading, config, sources);
  if (source != nullptr && reading.sound({"part"})) check_part(stream, *source, value, reading);
  if (source != nullptr && source->feed() != nullptr) {
    check_fed(stream, value, reading, config);
  } else if (source != nullptr && !source->type->traits.images) {
    const auto why = fmt::format("a source of type {} has no images; leave this out", source->type->name);
    refuse(plan_keys(), {"fields"}, why.c_str(), value, reading);
  } else if (source != nullptr || value.contains("transforms")) {
    // An invalid source is unknown, so no stream is checked against it.
    check_plan(stream.plan, value, reading);
  }
  if (reading.sound({"sharing", "ring", "delivery"})) check_sharing(stream, value, reading);
  if (reading.sound({"sampler", "shuffle"})) check_sampler(stream, value, reading);
  check_residence(stream, value, reading);
}

}  // namespace headrace::server::config
