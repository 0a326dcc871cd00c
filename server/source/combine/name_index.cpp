#include "server/source/combine/name_index.h"

#include <xxhash.h>

#include <algorithm>

namespace headrace::server::source {
namespace {

std::uint64_t hash_of(std::string_view name) {
  return XXH3_64bits(name.data(), name.size());
}

}  // namespace

NameIndex::NameIndex(const Source& source) : source_(source), hashes_(source.size()) {
  for (std::uint64_t i = 0; i < hashes_.size(); ++i) hashes_[i] = {hash_of(source.name(i)), i};
  std::sort(hashes_.begin(), hashes_.end());
}

std::optional<std::uint64_t> NameIndex::find(std::string_view name) const {
  if (name.starts_with("./")) name.remove_prefix(2);
  const auto wanted = hash_of(name);
  for (auto it = std::lower_bound(hashes_.begin(), hashes_.end(), std::pair{wanted, std::uint64_t{0}});
       it != hashes_.end() && it->first == wanted; ++it)
    if (source_.name(it->second) == name) return it->second;
  return std::nullopt;
}

}  // namespace headrace::server::source
