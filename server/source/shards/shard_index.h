// What one WebDataset shard holds: its samples by the format's rule, in a few bytes each.
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

/// What of a sample's members is served.
struct ShardRule {
  std::vector<std::string> images;   ///< extensions; a sample's image is the first of them that it has
  std::string label = "cls";         ///< extension of a number as text, "json.KEY", or "none"
  std::vector<std::string> classes;  ///< names; empty: "0", "1", ...

  [[nodiscard]] bool labelled() const { return label != "none"; }
};

struct MemberName {
  std::string_view key;
  std::string extension;
};
/// WebDataset's rule: the key is the name up to the first dot of the last path component, the extension the
/// rest, in small letters. None: the member is not part of a sample.
std::optional<MemberName> parse_member_name(std::string_view name);

struct ShardSample {
  std::uint64_t offset = 0;  ///< of its image in the shard
  std::uint32_t bytes = 0;   ///< of its image; kHuge: so many or more
  std::uint32_t label = 0;
  std::uint32_t name_end = 0;   ///< in ShardIndex::names; it begins where the sample before ends
  std::uint32_t extension = 0;  ///< in ShardRule::images

  static constexpr std::uint32_t kHuge = 0xFFFFFFFF;
};
// The cache's file holds them as they are.
static_assert(sizeof(ShardSample) == 24 && std::is_trivially_copyable_v<ShardSample> &&
              std::has_unique_object_representations_v<ShardSample>);

struct ShardIndex {
  std::vector<ShardSample> samples;               ///< as they lie in the shard
  std::string names;                              ///< all keys, one after the other
  std::uint64_t fingerprint = 0;                  ///< xxh3 over each sample's key, extension, size and label
  std::map<std::string, std::uint64_t> left_out;  ///< members that are not served, by extension

  [[nodiscard]] std::string_view key(std::size_t sample) const;
  /// Into `left_out`, of which the size is bounded.
  void leave_out(const std::string& extension, std::uint64_t count);
};

/// Computes ShardIndex::fingerprint from the samples and names in `index`.
std::uint64_t fingerprint_of(const ShardIndex& index, const std::vector<std::string>& images);

/// Walks the tar file; members with one key in a row are one sample. What is wrong with single samples (no
/// image, no label, no number, a label out of range, a key twice) goes to `problems`. Errors: TarReader's,
/// and kDatasetInvalid for more than 4 GiB of names.
Result<ShardIndex> index_shard(TarReader tar, const std::string& shown, const ShardRule& rule,
                               Problems& problems);

}  // namespace headrace::server::source
