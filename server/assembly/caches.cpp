#include "server/assembly/caches.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/base/human.h"
#include "server/cache/encoded_source.h"
#include "server/log/log.h"

namespace headrace::server::assembly {

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
                                                   std::uint64_t budget, std::uint64_t samples) {
  auto arena = cache::Arena::create(fmt::format("source `{}`, cache.{}", name, kind), budget);
  if (arena) all_.memory.push_back({name, kind, samples, *arena});
  return arena;
}

Result<SourcePtr> Caches::keep_encoded(const std::string& name, SourcePtr whole) {
  const config::CacheConfig& config = configs_.at(name).cache;
  if (config.encoded == 0) return whole;
  auto arena = open(name, "encoded", config.encoded, whole->size());
  if (!arena) return fail(std::move(arena.error()));
  table_bytes_ += whole->size() * cache::SampleCache::kTableBytes;
  if (!config.tile || !cropped_.contains(name))
    return cache::keep_encoded(std::move(whole), std::move(*arena));
  table_bytes_ += whole->size() * cache::IdleTiler::kTableBytes;
  auto tiled = cache::keep_tiled(std::move(whole), std::move(*arena));
  all_.memory.back().tiler = std::move(tiled.tiler);
  return std::move(tiled.source);
}

std::vector<config::SourceRef> Caches::keeping_members(const std::string& name) const {
  const config::SourceConfig& config = configs_.at(name);
  return config.type->traits.keeps_in_members ? config.made_of() : std::vector<config::SourceRef>();
}

std::size_t Caches::parts(const std::string& name) const {
  const auto members = keeping_members(name);
  if (members.empty()) return 1;
  return std::accumulate(members.begin(), members.end(), std::size_t{0},
                         [this](std::size_t sum, const auto& ref) { return sum + parts(ref.name); });
}

void Caches::add_owners(const std::string& name, std::vector<Owner>& out) const {
  const auto members = keeping_members(name);
  if (members.empty() || configs_.at(name).cache.decoded > 0) {
    out.push_back({name, parts(name)});
  } else {
    for (const config::SourceRef& ref : members) add_owners(ref.name, out);
  }
}

Result<cache::SampleCaches> Caches::decoded(const std::string& of, const source::Source& source,
                                            const std::vector<exec::FieldPlan>& plans) {
  std::vector<Owner> owners;
  add_owners(of, owners);
  const auto keys = exec::kept_keys(source, plans);
  const auto sizes = source.distinct_sizes();
  auto size = sizes.begin();
  std::vector<cache::SampleCaches::Part> parts;
  std::uint64_t first = 0;
  bool any = false;
  for (const Owner& owner : owners) {
    asked_.insert(owner.source);
    require(std::cmp_less_equal(owner.parts, sizes.end() - size), "a source has fewer parts than its cache");
    const auto next = size + static_cast<std::ptrdiff_t>(owner.parts);
    const std::uint64_t samples = std::accumulate(size, next, std::uint64_t{0});
    auto fields = decoded_of(owner.source, samples, keys, plans);
    if (!fields) return fail(std::move(fields.error()));
    any |= !fields->empty();
    parts.push_back({first, std::move(*fields)});
    first += samples;
    size = next;
  }
  return any ? cache::SampleCaches(std::move(parts)) : cache::SampleCaches();
}

Result<std::vector<std::shared_ptr<cache::SampleCache>>> Caches::decoded_of(
    const std::string& name, std::uint64_t samples, const std::vector<std::string>& keys,
    const std::vector<exec::FieldPlan>& plans) {
  std::vector<std::shared_ptr<cache::SampleCache>> out;
  const std::uint64_t budget = configs_.at(name).cache.decoded;
  if (budget == 0) return out;
  if (keys.empty()) {
    log::warn(
        "source `{}`, cache.decoded: a stream does not use it: its samples need no decoding and have "
        "no transform before the first random one",
        name);
    return out;
  }
  auto& arena = decoded_[name];
  if (!arena) {
    auto opened = open(name, "decoded", budget, samples);
    if (!opened) return fail(std::move(opened.error()));
    arena = std::move(*opened);
  }
  std::uint64_t each = 0;
  if (const auto fields = exec::kept_bytes(plans))
    for (const std::uint64_t bytes : *fields) each += cache::Arena::rounded(sizeof(cache::Piece) + bytes);
  if (each > arena->budget())
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("source `{}`: cache.decoded: {} bytes do not hold even one sample, which takes "
                            "{} bytes: raise it (all {} "
                            "samples take {}) or remove it",
                            name, budget, each, samples, human_bytes(each * samples)));
  for (const std::string& key : keys) {
    auto& shared = shared_[{name, key}];
    if (!shared) {
      shared = std::make_shared<cache::SampleCache>(arena, samples);
      table_bytes_ += samples * cache::SampleCache::kTableBytes;
    }
    out.push_back(shared);
  }
  return out;
}

}  // namespace headrace::server::assembly
