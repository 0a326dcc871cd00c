// Stores the index of a set of shards in a file, so that the next start does not walk them again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/source/shards/shard_index.h"

namespace headrace::server::source {

/// Identifies the version of a shard that was indexed.
struct ShardStamp {
  std::string name;  ///< relative to the shards' folder
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  ///< of a file
  std::string tag = {};          ///< of a URL: see remote::Stat
};

/// Best effort: shards whose index cannot be read, trusted or written are indexed again, without a message.
/// The file is beside the shards; if that folder is not writable or is a URL, it is in
/// $XDG_CACHE_HOME/headrace (~/.cache/headrace). Other users may be able to write to the shards' folder, so a
/// file there is used only if it belongs to this user or root (clientlib/base/trusted_path.h).
class IndexCache {
 public:
  IndexCache(const std::filesystem::path& folder, const std::vector<ShardStamp>& shards,
             const ShardRule& rule);

  /// One index per shard. None: there is no file; it belongs to another user, to other shards (name, size,
  /// time of change) or to another rule or version; its checksum or one of its numbers is wrong; or its
  /// samples' fingerprint differs from the stored one. Allocates no more than the file's own size.
  [[nodiscard]] std::optional<std::vector<ShardIndex>> load() const;
  /// Writes a temporary file, then renames it.
  void store(const std::vector<ShardIndex>& shards) const;

 private:
  std::vector<std::filesystem::path> files_;  // the first that works is used
  std::filesystem::path home_;                // created if it does not exist
  std::string key_;                           // JSON: version, rule, stamps
  std::vector<std::uint64_t> shard_bytes_;
  std::vector<std::string> images_;  // the rule's extensions
  std::int64_t label_limit_;
};

}  // namespace headrace::server::source
