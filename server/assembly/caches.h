// The caches that a configuration requests, opened as streams need them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/error.h"
#include "server/cache/idle_tiler.h"
#include "server/cache/sample_caches.h"
#include "server/config/config.h"
#include "server/exec/field_plans.h"
#include "server/io/disk_cache.h"
#include "server/source/source.h"

namespace headrace::server::assembly {

/// One memory budget, for metrics and `check`.
struct CacheUse {
  std::string source;
  std::string_view kind;      ///< "encoded", "decoded"
  std::uint64_t samples = 0;  ///< in the source
  std::shared_ptr<const cache::Arena> arena;
  std::shared_ptr<cache::IdleTiler> tiler;  ///< null: its images stay as they were read
};

/// One source's share of a disk cache.
struct DiskCacheUse {
  std::string source;
  std::shared_ptr<const io::DiskCache> cache;
};

struct CachesInUse {
  std::vector<CacheUse> memory;
  std::vector<DiskCacheUse> disk;
};

class Caches {
 public:
  /// `config` must outlive it.
  explicit Caches(const config::Config& config);

  /// `whole`, or a source that caches what it reads of it. kNotEnoughMemory.
  Result<std::shared_ptr<const source::Source>> keep_encoded(const std::string& name,
                                                             std::shared_ptr<const source::Source> whole);
  /// A cache for each plan: it keeps what the plan's prefix makes of the source (`source` may be a part of
  /// it). Streams whose prefixes for a field are equal share it. A subset, a relabelled or a repeated source
  /// uses the caches of its source, and a concat those of its members, unless it has a budget of its own.
  /// Each sample is kept once. None: none is configured, or it would save nothing, which is logged.
  /// kConfigInvalid: a budget is known to be smaller than one sample. kNotEnoughMemory.
  Result<cache::SampleCaches> decoded(const std::string& of, const source::Source& source,
                                      const std::vector<exec::FieldPlan>& plans);
  /// Records the disk cache of a source, for metrics.
  void note(const std::string& name, std::shared_ptr<const io::DiskCache> cache) {
    all_.disk.push_back({name, std::move(cache)});
  }
  [[nodiscard]] const CachesInUse& all() const { return all_; }
  /// Whether a stream uses the source's `decoded` cache.
  [[nodiscard]] bool in_use(const std::string& name) const { return asked_.contains(name); }
  /// Bytes of the entry tables, which the budgets do not include.
  [[nodiscard]] std::uint64_t table_bytes() const { return table_bytes_; }

 private:
  Result<std::shared_ptr<cache::Arena>> open(const std::string& name, std::string_view kind,
                                             std::uint64_t budget, std::uint64_t samples);
  /// The members whose caches hold the source's samples; empty: the source's own does.
  [[nodiscard]] std::vector<config::SourceRef> keeping_members(const std::string& name) const;
  /// A source whose cache is used, and how many of Source::distinct_sizes() are its samples.
  struct Owner {
    std::string source;
    std::size_t parts = 1;
  };
  void add_owners(const std::string& name, std::vector<Owner>& out) const;
  [[nodiscard]] std::size_t parts(const std::string& name) const;
  /// One for each key; none: the source has no budget, or keeping its samples would save nothing.
  Result<std::vector<std::shared_ptr<cache::SampleCache>>> decoded_of(
      const std::string& name, std::uint64_t samples, const std::vector<std::string>& keys,
      const std::vector<exec::FieldPlan>& plans);
  /// Records that a stream crops what it reads of this source and does not use a cache `decoded`.
  void note_crops(const std::string& name);

  const std::map<std::string, config::SourceConfig>& configs_;
  std::map<std::string, std::shared_ptr<cache::Arena>> decoded_;  ///< by source
  /// By source and by what is kept of a field.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<cache::SampleCache>> shared_;
  std::set<std::string> asked_;
  std::set<std::string> cropped_;  ///< sources whose images should be tiled
  std::uint64_t table_bytes_ = 0;
  CachesInUse all_;
};

}  // namespace headrace::server::assembly
