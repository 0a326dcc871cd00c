// The index of a set of shards as a file, so that the next start does not walk them again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/source/shards/shard_index.h"

namespace headrace::server::source {

/// What tells that a shard is the one that was indexed.
struct ShardStamp {
  std::string name;  ///< relative to the shards' folder
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  ///< of a file
  std::string tag = {};          ///< of what lies behind a URL: see remote::Stat
};

/// Best effort: shards whose index cannot be read, trusted or written are indexed again, without a message.
/// The file lies beside the shards, or, where that folder is not writable or no folder but a URL, in
/// $XDG_CACHE_HOME/headrace (~/.cache/headrace). Others may write to the shards' folder: a file there counts
/// only if it is this user's or root's (clientlib/base/trusted_path.h).
class IndexCache {
 public:
  IndexCache(const std::filesystem::path& folder, const std::vector<ShardStamp>& shards,
             const ShardRule& rule);

  /// One index per shard. None: there is no file, it is another user's, it is of other shards (name, size,
  /// time of change) or of another rule or version, its checksum or one of its numbers is wrong, or its
  /// samples have another fingerprint than it says. Nothing is allocated that the file's own size does not
  /// cover.
  [[nodiscard]] std::optional<std::vector<ShardIndex>> load() const;
  /// To a temporary file first, then renamed.
  void store(const std::vector<ShardIndex>& shards) const;

 private:
  std::vector<std::filesystem::path> files_;  // the first that works
  std::filesystem::path home_;                // made if it is not there
  std::string key_;                           // JSON: version, rule, stamps
  std::vector<std::uint64_t> shard_bytes_;
  std::vector<std::string> images_;  // the rule's extensions
  std::int64_t label_limit_;
};

}  // namespace headrace::server::source
