#include "server/session/caches.h"

#include <fmt/format.h>

#include "server/cache/encoded_source.h"
#include "server/log/log.h"
#include "server/source/combine/relabel.h"
#include "server/source/combine/repeat.h"
#include "server/source/combine/subset.h"

namespace headrace::server::session {

using SourcePtr = std::shared_ptr<const source::Source>;

Caches::Caches(const config::Config& config) : configs_(config.sources) {
  for (const auto& [name, stream] : config.streams)
    if (stream.plan.crops()) note_crops(stream.source);
}

void Caches::note_crops(const std::string& name) {
  const config::SourceConfig& config = configs_.at(name);
  if (config.cache.decoded > 0) return;
  cropped_.insert(name);
  for (const config::SourceRef& ref : config.made_of()) note_crops(ref.name);
}

Result<std::shared_ptr<cache::Arena>> Caches::open(const std::string& name, std::string_view kind,
                                                   std::uint64_t budget, const source::Source& whole) {
  auto arena = cache::Arena::create(fmt::format("source `{}`, cache.{}", name, kind), budget);
  if (arena) all_.memory.push_back({name, kind, whole.size(), *arena});
  return arena;
}

Result<SourcePtr> Caches::keep_encoded(const std::string& name, SourcePtr whole) {
  const config::CacheConfig& config = configs_.at(name).cache;
  if (config.encoded == 0) return whole;
  auto arena = open(name, "encoded", config.encoded, *whole);
  if (!arena) return fail(std::move(arena.error()));
  table_bytes_ += whole->size() * cache::SampleCache::kTableBytes;
  if (!config.tile || !cropped_.contains(name))
    return cache::keep_encoded(std::move(whole), std::move(*arena));
  table_bytes_ += whole->size() * cache::IdleTiler::kTableBytes;
  auto tiled = cache::keep_tiled(std::move(whole), std::move(*arena));
  all_.memory.back().tiler = std::move(tiled.tiler);
  return std::move(tiled.source);
}

const std::string& Caches::owner(const std::string& name) const {
  const auto found = configs_.find(name);
  const config::SourceConfig& config = found->second;
  if (config.cache.decoded > 0) return found->first;
  if (const auto* part = config.as<source::SubsetOptions>()) return owner(part->of.front().name);
  if (const auto* other = config.as<source::RelabelOptions>()) return owner(other->of.front().name);
  if (const auto* again = config.as<source::RepeatOptions>()) return owner(again->of.front().name);
  return found->first;
}

Result<std::shared_ptr<cache::SampleCache>> Caches::decoded(const std::string& of,
                                                            const source::Source& source,
                                                            const std::vector<exec::FieldPlan>& plans) {
  const std::string& name = owner(of);
  asked_.insert(name);
  const std::uint64_t budget = configs_.at(name).cache.decoded;
  if (budget == 0) return nullptr;
  const std::string key = exec::kept_key(source, plans);
  if (key.empty()) {
    log::warn(
        "source `{}`, cache.decoded: a stream has no use for it: there is nothing to decode, nor a "
        "transform before the first random one",
        name);
    return nullptr;
  }
  const source::Source& kept = source.distinct();
  auto& arena = decoded_[name];
  if (!arena) {
    auto opened = open(name, "decoded", budget, kept);
    if (!opened) return fail(std::move(opened.error()));
    arena = std::move(*opened);
  }
  const std::uint64_t head = plans.size() * sizeof(cache::Piece);
  if (const auto bytes = exec::kept_bytes(plans); bytes && *bytes + head > arena->budget())
    return fail(
        ErrorCode::kConfigInvalid,
        fmt::format(
            "source `{}`: cache.decoded: {} bytes do not hold even one sample, which takes {}; all {} take "
            "{:.1f} MB",
            name, budget, *bytes + head, kept.size(),
            static_cast<double>(*bytes + head) * static_cast<double>(kept.size()) / 1e6));
  auto& shared = shared_[{name, key}];
  if (!shared) {
    shared = std::make_shared<cache::SampleCache>(arena, kept.size());
    table_bytes_ += kept.size() * cache::SampleCache::kTableBytes;
  }
  return shared;
}

}  // namespace headrace::server::session
