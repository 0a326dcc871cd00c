// The configuration of a source: its type with its options, and the keys that several types share.
#pragma once

#include <any>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/described/reading.h"
#include "server/remote/s3.h"
#include "server/source/combine/split.h"
#include "server/source/formats/feed.h"
#include "server/source/source_type.h"

namespace headrace::server::config {

using source::SourceRef;

/// Budgets in bytes; 0: none.
struct CacheConfig {
  std::uint64_t encoded = 0, decoded = 0;
  bool tile = true;  ///< for `encoded`: idle workers may tile its JPEGs

  static described::Description<CacheConfig> description();
};
/// Prefetching; see server/io/read_ahead.h.
struct IoConfig {
  unsigned threads = 64;               ///< per source
  std::uint64_t read_ahead = 256;      ///< samples per stream; 0: the workers read
  std::uint64_t memory = 256'000'000;  ///< bytes per stream
  std::chrono::milliseconds delay{0};  ///< added to each read, for trials
  struct DiskCache {
    std::filesystem::path path;  ///< absolute
    std::uint64_t size = 0;      ///< bytes

    static described::Description<DiskCache> description();
  };
  std::optional<DiskCache> disk_cache;

  static described::Description<IoConfig> description();
};
/// For a source with data behind URLs; see server/remote/remote.h.
struct NetworkConfig {
  remote::S3Config s3;
  std::filesystem::path tls_ca;  ///< absolute; empty: the system's authorities
  bool by_sample = false;        ///< each sample is read by a request of its own

  static described::Description<NetworkConfig> description();
};
struct SourceConfig {
  const source::SourceType* type = nullptr;
  std::any options;  ///< the type's
  std::optional<source::Split> split;
  CacheConfig cache;
  std::optional<IoConfig> io;
  std::optional<NetworkConfig> network;

  /// Null: it has another type.
  template <class Options>
  [[nodiscard]] const Options* as() const {
    return std::any_cast<Options>(&options);
  }
  /// The options of a feed, whose batches come from another process; the name in them is empty. Null: not a
  /// feed.
  [[nodiscard]] const source::FeedOptions* feed() const { return as<source::FeedOptions>(); }
  /// The sources that it refers to; empty for sources with data of their own.
  [[nodiscard]] std::vector<SourceRef> made_of() const { return type->made_of(options); }
};

/// The source at `reading`, which conforms to the schema; other problems are added to the faults. Messages
/// show only remote::shown() of a URL. A source that is read over the network sample by sample has `io`, even
/// if it is not configured.
SourceConfig read_source(const nlohmann::json& value, const described::Reading& reading);

/// One of the types, selected by the key `type`.
nlohmann::ordered_json source_schema();

}  // namespace headrace::server::config
