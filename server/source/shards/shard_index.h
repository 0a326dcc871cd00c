// The index of one WebDataset shard: its samples by the format's rule, in a few bytes each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "headrace/error.h"
#include "server/source/problems.h"
#include "server/source/shards/tar_reader.h"

namespace headrace::server::source {

/// Which of a sample's members are served.
struct ShardRule {
  std::vector<std::string> images;   ///< extensions; a sample's image is the first of these that it has
  std::string label = "cls";         ///< extension of a number as text, "json.KEY", or "none"
  std::vector<std::string> classes;  ///< names; empty: "0", "1", ...

  [[nodiscard]] bool labelled() const { return label != "none"; }
};

struct MemberName {
  std::string_view key;
  std::string extension;
};
/// WebDataset's rule: the key is the name up to the first dot of the last path component, the extension is
/// the rest, in lower case. None: the member is not part of a sample.
std::optional<MemberName> parse_member_name(std::string_view name);

struct ShardSample {
  std::uint64_t offset = 0;  ///< of its image in the shard
  std::uint32_t bytes = 0;   ///< of its image; kHuge: this many or more
  std::uint32_t label = 0;
  std::uint32_t name_end = 0;   ///< in ShardIndex::names; it begins where the previous one ends
  std::uint32_t extension = 0;  ///< in ShardRule::images

  static constexpr std::uint32_t kHuge = 0xFFFFFFFF;
};
// The cache file holds them in this layout.
static_assert(sizeof(ShardSample) == 24 && std::is_trivially_copyable_v<ShardSample> &&
              std::has_unique_object_representations_v<ShardSample>);

struct ShardIndex {
  std::vector<ShardSample> samples;               ///< in the shard's order
  std::string names;                              ///< all keys, concatenated
  std::uint64_t fingerprint = 0;                  ///< xxh3 over each sample's key, extension, size and label
  std::map<std::string, std::uint64_t> left_out;  ///< members that are not served, by extension

  [[nodiscard]] std::string_view key(std::size_t sample) const;
  /// Counts in `left_out`, whose size is bounded.
  void leave_out(const std::string& extension, std::uint64_t count);
};

/// Computes ShardIndex::fingerprint from the samples and names in `index`.
std::uint64_t fingerprint_of(const ShardIndex& index, const std::vector<std::string>& images);

/// Walks the tar file; consecutive members with one key form a sample. Problems of single samples (no image,
/// no label, not a number, a label out of range, a repeated key) are added to `problems`. Errors:
/// TarReader's, and kDatasetInvalid for more than 4 GiB of names.
Result<ShardIndex> index_shard(TarReader tar, const std::string& shown, const ShardRule& rule,
                               Problems& problems);

}  // namespace headrace::server::source
