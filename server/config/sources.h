// The configuration of sources as plain structs: one per type.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/config/composites.h"
#include "server/remote/s3.h"
#include "server/source/formats/feed.h"
#include "server/source/formats/manifest.h"
#include "server/source/formats/paired_folders.h"

namespace headrace::server::config {

struct ImageFolderSource {
  std::filesystem::path path;  ///< absolute
};
struct IdxSource {
  std::filesystem::path images, labels;  ///< absolute
  std::vector<std::string> classes;      ///< empty: numbers
};
struct CifarSource {
  std::filesystem::path path;  ///< absolute
  bool test = false, coarse = false;
};
struct PairedFoldersSource {
  std::map<std::string, source::PairedFolder> folders;  ///< by field; paths absolute
};
struct ManifestSource {
  source::ManifestOptions options;  ///< paths absolute
};
struct LmdbSource {
  std::filesystem::path path;  ///< absolute
  bool verify = false;
};
struct WebDatasetSource {
  std::vector<std::string> paths;  ///< files, folders or patterns; absolute
  std::vector<std::string> images{"jpg", "jpeg", "png"};
  std::string label = "cls";
  std::vector<std::string> classes;  ///< empty: numbers
  bool index_cache = true;
};
struct NpySource {
  std::map<std::string, std::filesystem::path> files;  ///< field -> .npy, absolute; empty: `path`
  std::filesystem::path path;                          ///< .npz, absolute
  std::map<std::string, std::string> arrays;           ///< field -> array in `path`; empty: all
  std::optional<std::vector<std::string>> images;
  std::vector<std::string> classes;  ///< empty: numbers
};
struct SyntheticSource {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};
/// Budgets in bytes; 0: none.
struct CacheConfig {
  std::uint64_t encoded = 0, decoded = 0;
  bool tile = true;  ///< of `encoded`: idle workers may make tiles of its JPEGs
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
  };
  std::optional<DiskCache> disk_cache;
};
/// Of a source whose data lie behind URLs; see server/remote/remote.h.
struct NetworkConfig {
  remote::S3Config s3;
  std::filesystem::path tls_ca;  ///< absolute; empty: the system's authorities
  bool by_sample = false;        ///< each read of a sample is one over the network
};
struct SourceConfig {
  std::variant<ImageFolderSource, IdxSource, CifarSource, PairedFoldersSource, ManifestSource, LmdbSource,
               WebDatasetSource, NpySource, source::FeedOptions, SyntheticSource, ConcatSource, SubsetSource,
               RepeatSource, ZipSource, RelabelSource>
      kind;
  std::optional<SplitConfig> split;
  CacheConfig cache;
  std::optional<IoConfig> io;
  std::optional<NetworkConfig> network;

  [[nodiscard]] bool synthetic() const { return std::holds_alternative<SyntheticSource>(kind); }
  /// Its batches come from another process; its name in it is empty. Null: no feed.
  [[nodiscard]] const source::FeedOptions* feed() const { return std::get_if<source::FeedOptions>(&kind); }
  /// All of its images have one size, or may have: that is known once it is open.
  [[nodiscard]] bool one_size() const {
    return std::holds_alternative<IdxSource>(kind) || std::holds_alternative<CifarSource>(kind) ||
           std::holds_alternative<LmdbSource>(kind) || std::holds_alternative<NpySource>(kind) ||
           !made_of().empty();
  }
  /// The sources that it refers to; empty for those that read data of their own.
  [[nodiscard]] std::vector<SourceRef> made_of() const;
};

/// Of a value that the schema holds good; relative paths are relative to `folder`. A source that is read over
/// the network sample by sample has `io`, also where nothing is said of it.
SourceConfig read_source(const nlohmann::json& value, const std::filesystem::path& folder);

}  // namespace headrace::server::config
