// The shards of a WebDataset, local or remote.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/remote/remote.h"
#include "server/source/files/file_reader.h"
#include "server/source/shards/index_cache.h"
#include "server/source/shards/shard_index.h"

namespace headrace::server::source {

/// Thread safety: the same as Source's.
class ShardSet {
 public:
  virtual ~ShardSet() = default;

  /// The deepest folder above all shards; their names are relative to it, and messages begin with it.
  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] const std::vector<ShardStamp>& shards() const { return shards_; }
  /// Whether the stamp shows that a shard changed.
  [[nodiscard]] virtual bool stamped() const { return true; }
  /// How many shards to index in parallel.
  [[nodiscard]] virtual std::size_t at_once() const = 0;
  /// See index_shard(). Also kDatasetInvalid if the shard has changed since the set was found.
  [[nodiscard]] virtual Result<ShardIndex> index(std::size_t shard, const ShardRule& rule,
                                                 Problems& problems) const = 0;
  /// Fills `out` from `offset` on. Errors: as Source::read().
  [[nodiscard]] virtual Result<void> read(std::size_t shard, std::uint64_t offset,
                                          std::span<std::uint8_t> out) const = 0;

 protected:
  explicit ShardSet(std::string root) : root_(std::move(root)) {}
  std::vector<ShardStamp> shards_;

 private:
  const std::string root_;
};

/// See list_shards(). kDatasetInvalid: names those that do not exist or are not regular files.
Result<std::unique_ptr<const ShardSet>> find_local_shards(const std::vector<std::string>& paths,
                                                          const ReadPolicy& policy);

/// Each path is the URL of a tar file, a pattern with ranges of numbers in braces, or s3://bucket/folder,
/// which stands for its *.tar, sorted by name. Names and order are those of the same files in a folder. A
/// shard is indexed by reading it in blocks: small ones if its headers are far apart, growing ones if they
/// are close. kDatasetInvalid: not there, not all on one server, a server without range requests, an empty
/// listing, the same shard twice. Also Remote's errors.
Result<std::unique_ptr<const ShardSet>> find_remote_shards(const std::vector<std::string>& urls,
                                                           std::shared_ptr<const remote::Remote> remote);

}  // namespace headrace::server::source
