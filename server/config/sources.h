// The configuration of a source: its type with its options, and the keys that several types have.
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
  bool tile = true;  ///< of `encoded`: idle workers may make tiles of its JPEGs

  static described::Description<CacheConfig> description();
};
/// Reading ahead; see server/io/read_ahead.h.
struct IoConfig {
  unsigned threads = 64;               ///< of the source
  std::uint64_t read_ahead = 256;      ///< samples of each stream; 0: the workers read
  std::uint64_t memory = 256'000'000;  ///< bytes of each stream
  std::chrono::milliseconds delay{0};  ///< of each read, for trials
  struct DiskCache {
    std::filesystem::path path;  ///< absolute
    std::uint64_t size = 0;      ///< bytes

    static described::Description<DiskCache> description();
  };
  std::optional<DiskCache> disk_cache;

  static described::Description<IoConfig> description();
};
/// Of a source whose data lie behind URLs; see server/remote/remote.h.
struct NetworkConfig {
  remote::S3Config s3;
  std::filesystem::path tls_ca;  ///< absolute; empty: the system's authorities
  bool by_sample = false;        ///< each read of a sample is one over the network

  static described::Description<NetworkConfig> description();
};
struct SourceConfig {
  const source::SourceType* type = nullptr;
  std::any options;  ///< the type's
  std::optional<source::Split> split;
  CacheConfig cache;
  std::optional<IoConfig> io;
  std::optional<NetworkConfig> network;

  /// Null: it is of another type.
  template <class Options>
  [[nodiscard]] const Options* as() const {
    return std::any_cast<Options>(&options);
  }
  /// Its batches come from another process; its name in it is empty. Null: no feed.
  [[nodiscard]] const source::FeedOptions* feed() const { return as<source::FeedOptions>(); }
  /// The sources that it refers to; empty for those that read data of their own.
  [[nodiscard]] std::vector<SourceRef> made_of() const { return type->made_of(options); }
};

/// The source at `reading`, each key of which the schema holds good; what else is wrong with it is added to
/// the faults. No message has more of a URL than remote::shown(). A source that is read over the network
/// sample by sample has `io`, also where nothing is said of it.
SourceConfig read_source(const nlohmann::json& value, const described::Reading& reading);

/// One of the types, told apart by the key `type`.
nlohmann::ordered_json source_schema();

}  // namespace headrace::server::config
