// The caches of a source's samples: one, or one for each of the sources that it was put together from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "server/cache/sample_cache.h"

namespace headrace::server::cache {

/// Thread safety: as SampleCache.
class SampleCaches {
 public:
  struct Part {
    std::uint64_t first = 0;             ///< index of its first sample; ascending from part to part
    std::shared_ptr<SampleCache> cache;  ///< null: its samples are not kept
  };

  SampleCaches() = default;  ///< none
  // NOLINTNEXTLINE(google-explicit-constructor): one cache is the usual case
  SampleCaches(std::shared_ptr<SampleCache> all) {
    if (all) parts_.push_back({0, std::move(all)});
  }
  /// At least one part has a cache. The first part begins at 0.
  explicit SampleCaches(std::vector<Part> parts) : parts_(std::move(parts)) {}

  /// Whether samples are kept.
  [[nodiscard]] explicit operator bool() const { return !parts_.empty(); }
  /// As SampleCache::lookup(); neither pieces nor a claim where nothing is kept.
  [[nodiscard]] SampleCache::Found lookup(std::uint64_t index) const {
    const Part& part = of(index);
    return part.cache ? part.cache->lookup(index - part.first) : SampleCache::Found{};
  }
  [[nodiscard]] bool holds(std::uint64_t index) const {
    const Part& part = of(index);
    return part.cache && part.cache->holds(index - part.first);
  }
  /// As SampleCache::room(), for a sample with a claim.
  [[nodiscard]] std::uint64_t room(std::uint64_t index, std::size_t pieces) const {
    return of(index).cache->room(pieces);
  }

 private:
  [[nodiscard]] const Part& of(std::uint64_t index) const {
    if (parts_.size() == 1) return parts_.front();
    return *std::prev(
        std::upper_bound(parts_.begin(), parts_.end(), index,
                         [](std::uint64_t wanted, const Part& part) { return wanted < part.first; }));
  }

  std::vector<Part> parts_;
};

}  // namespace headrace::server::cache
