#include "server/session/cache_metrics.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace headrace::server::session {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

/// The counters common to both sorts of caches, and those of only one.
struct Figures {
  const std::string& source;
  std::string_view kind;
  std::uint64_t hits, misses, bytes, budget;
  /// Only for memory: a folder is shared, and does not know its number.
  std::optional<std::uint64_t> samples;
  std::optional<io::DiskCache::Counts> on_disk;
  std::optional<cache::IdleTiler::Counts> tiles;
};

std::vector<Figures> figures_of(const assembly::CachesInUse& caches) {
  std::vector<Figures> all;
  for (const assembly::CacheUse& use : caches.memory) {
    const auto counts = use.arena->counts();
    all.push_back({use.source, use.kind, counts.hits, counts.misses, use.arena->used(), use.arena->budget(),
                   counts.samples, std::nullopt, std::nullopt});
    if (use.tiler) all.back().tiles = use.tiler->counts();
  }
  for (const assembly::DiskCacheUse& use : caches.disk) {
    const auto counts = use.cache->counts();
    all.push_back({use.source, "disk", counts.hits, counts.misses, counts.bytes, counts.budget, std::nullopt,
                   counts, std::nullopt});
  }
  return all;
}

}  // namespace

void add_caches(Families& families, const assembly::CachesInUse& caches) {
  const std::vector<Figures> all = figures_of(caches);
  const auto family = [&](const char* name, const char* help, MetricType type, auto value) {
    MetricFamily made{name, help, type, {}};
    for (const Figures& of : all)
      if (const std::optional<double> is = value(of))
        add(made, {{"source", of.source}, {"kind", std::string(of.kind)}}, *is);
    if (!made.metric.empty()) families.open(name, help, type) = std::move(made);
  };
  const auto on_disk = [&](const char* name, const char* help, MetricType type, auto value) {
    family(name, help, type, [value](const Figures& of) {
      return of.on_disk ? std::optional<std::uint64_t>(value(*of.on_disk)) : std::nullopt;
    });
  };
  const auto tiles = [&](const char* name, const char* help, auto member) {
    family(name, help, MetricType::Gauge, [member](const Figures& of) {
      return of.tiles ? std::optional<std::uint64_t>((*of.tiles).*member) : std::nullopt;
    });
  };
  using Disk = io::DiskCache::Counts;
  family("headrace_cache_hits_total", "Samples served from a cache.", MetricType::Counter,
         [](const Figures& of) { return of.hits; });
  family("headrace_cache_misses_total", "Samples requested from a cache that had to be read or decoded.",
         MetricType::Counter, [](const Figures& of) { return of.misses; });
  family("headrace_cache_samples", "Samples that a cache in memory holds.", MetricType::Gauge,
         [](const Figures& of) { return of.samples; });
  family("headrace_cache_bytes",
         "Bytes used by a cache: its memory, or its folder, which several servers may share.",
         MetricType::Gauge, [](const Figures& of) { return of.bytes; });
  family("headrace_cache_budget_bytes", "Maximum size of a cache in bytes.", MetricType::Gauge,
         [](const Figures& of) { return of.budget; });
  using Tiles = cache::IdleTiler::Counts;
  tiles("headrace_cache_tiled_images", "JPEGs in a cache that idle workers rewrote as tiles.", &Tiles::tiled);
  tiles("headrace_cache_tiled_bytes", "Bytes of the cached JPEGs that are stored as tiles.", &Tiles::bytes);
  tiles("headrace_cache_untiled_images",
        "Cached images that are not rewritten as tiles: already tiled, too large, or of an unsuitable kind.",
        &Tiles::untiled);
  tiles("headrace_cache_samples_to_tile", "Cached samples that idle workers have yet to rewrite as tiles.",
        &Tiles::waiting);
  family("headrace_cache_tiling_seconds_total", "Time that idle workers took to rewrite images as tiles.",
         MetricType::Counter, [](const Figures& of) {
           return of.tiles ? std::optional(static_cast<double>(of.tiles->busy_ns) * 1e-9) : std::nullopt;
         });
  on_disk("headrace_cache_damaged_total",
          "Files of a disk cache that were damaged, truncated or held other data; they were read again and "
          "replaced.",
          MetricType::Counter, [](const Disk& disk) { return disk.damaged; });
  on_disk("headrace_cache_write_errors_total", "Samples that could not be written to a disk cache.",
          MetricType::Counter, [](const Disk& disk) { return disk.write_errors; });
  on_disk("headrace_cache_full",
          "1 if a disk cache accepts no more samples: it is full, or its disk refuses writes.",
          MetricType::Gauge, [](const Disk& disk) { return std::uint64_t{disk.full}; });
}

nlohmann::json caches_as_json(const assembly::CachesInUse& caches) {
  nlohmann::json all = nlohmann::json::array();
  for (const Figures& of : figures_of(caches)) {
    all.push_back({{"source", of.source},
                   {"kind", of.kind},
                   {"hits", of.hits},
                   {"misses", of.misses},
                   {"bytes", of.bytes},
                   {"budget_bytes", of.budget}});
    if (of.samples) all.back()["samples"] = *of.samples;
    if (of.tiles)
      all.back().update({{"tiled_images", of.tiles->tiled},
                         {"tiled_bytes", of.tiles->bytes},
                         {"untiled_images", of.tiles->untiled},
                         {"samples_to_tile", of.tiles->waiting},
                         {"tiling_seconds", static_cast<double>(of.tiles->busy_ns) * 1e-9}});
    if (of.on_disk)
      all.back().update({{"damaged", of.on_disk->damaged},
                         {"write_errors", of.on_disk->write_errors},
                         {"full", of.on_disk->full}});
  }
  return all;
}

}  // namespace headrace::server::session
