// Opens configured sources.
#pragma once

#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "headrace/error.h"
#include "server/assembly/caches.h"
#include "server/config/sources.h"
#include "server/io/read_pool.h"
#include "server/remote/remote.h"
#include "server/source/combine/split.h"

namespace headrace::server::assembly {

/// How a source is prefetched, and by which pool; null: it is not.
struct Reads {
  const config::IoConfig* config = nullptr;
  std::shared_ptr<io::ReadPool> pool;
};

/// The reader of a source's URLs, for metrics.
struct RemoteUse {
  std::string source;
  std::shared_ptr<const remote::Remote> remote;
};

/// Opens each source once, on first use, including those that other sources are made of.
class Sources {
 public:
  /// `configs` must outlive it and must have been checked: no cycles, no unknown names. `caches` must outlive
  /// it, too; without it nothing is cached. `stop` ends network reads.
  explicit Sources(const std::map<std::string, config::SourceConfig>& configs, Caches* caches = nullptr,
                   std::stop_token stop = {})
      : configs_(configs), caches_(caches), stop_(std::move(stop)) {}

  /// `part`: empty for a source without a split. Errors: the source's.
  Result<std::shared_ptr<const source::Source>> open(const std::string& name, const std::string& part);
  [[nodiscard]] bool is_open(const std::string& name) const { return open_.contains(name); }
  /// For an opened source: its own `io`; for a composed one, the `io` of its slowest member, which is taken
  /// to be the one with the most threads.
  [[nodiscard]] Reads reads(const std::string& name) const;
  [[nodiscard]] const std::vector<RemoteUse>& remotes() const { return remotes_; }

 private:
  Result<source::Parts> open_first(const std::string& name);
  /// Null: the source has no URLs.
  Result<std::shared_ptr<const remote::Remote>> remote_of(const std::string& name);

  const std::map<std::string, config::SourceConfig>& configs_;
  Caches* caches_;
  const std::stop_token stop_;
  std::vector<RemoteUse> remotes_;
  std::map<std::string, source::Parts> open_;  ///< "" is the whole source
  std::map<std::string, Error> failed_;        ///< sources that are not tried again
  std::map<std::string, std::shared_ptr<io::ReadPool>> pools_;
};

}  // namespace headrace::server::assembly
