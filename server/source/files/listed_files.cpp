#include "server/source/files/listed_files.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>
#include <utility>

#include "server/source/files/at_once.h"
#include "server/source/files/folder_entries.h"

namespace headrace::server::source {
namespace {

/// A folder is not listed if fewer of its files are wanted.
constexpr std::uint64_t kWorthListing = 16;
/// Nor if it holds this many times more files than are wanted: checking each is faster then.
constexpr std::uint64_t kMostListed = 4;
/// With fewer wanted files per folder on average, folders are not all counted: their names would take more
/// memory than everything else.
constexpr std::uint64_t kFilesPerFolder = 4;
constexpr std::uint64_t kFilesPerTask = 4096;

/// Never 0.
std::uint64_t nonzero_hash(std::string_view name) {
  return XXH3_64bits(name.data(), name.size()) | std::uint64_t{1} << 63;
}

/// A set of hashes with linear probing; the hashes are uniform already. A collision of two names is as likely
/// as a damaged bit in memory, and its only effect is that a missing file is reported when it is read.
class NameSet {
 public:
  NameSet() = default;
  explicit NameSet(const std::vector<std::uint64_t>& hashes)
      : table_(hashes.empty() ? 0 : std::bit_ceil(2 * hashes.size())) {
    for (const std::uint64_t hash : hashes) table_[slot_of(hash)] = hash;
  }
  [[nodiscard]] bool contains(std::uint64_t hash) const {
    return !table_.empty() && table_[slot_of(hash)] == hash;
  }

 private:
  /// The index where it is or would be. Half of the entries are empty, which is 0.
  [[nodiscard]] std::size_t slot_of(std::uint64_t hash) const {
    std::size_t slot = hash & (table_.size() - 1);
    while (table_[slot] != 0 && table_[slot] != hash) slot = (slot + 1) & (table_.size() - 1);
    return slot;
  }

  std::vector<std::uint64_t> table_;
};

struct ListedFolder {
  std::uint64_t wanted = 0;
  NameSet names;  ///< of its regular files
};
using ListedFolders = std::unordered_map<std::string_view, ListedFolder>;

/// With its slash; empty: the root itself.
std::string_view folder_of(std::string_view path) {
  return path.substr(0, path.rfind('/') + 1);
}

ListedFolders count_by_folder(std::uint64_t count, const PathOf& path) {
  ListedFolders folders;
  auto last = folders.end();  // neighbors mostly share their folder
  for (std::uint64_t row = 0; row < count; ++row) {
    const std::string_view name = folder_of(path(row));
    if (last == folders.end() || last->first != name)
      last =
          folders.size() < count / kFilesPerFolder + 1 ? folders.try_emplace(name).first : folders.find(name);
    if (last != folders.end()) ++last->second.wanted;
  }
  return folders;
}

void list(int root_fd, std::string_view name, ListedFolder& folder) {
  const std::string path = name.empty() ? "." : std::string(name);
  // In a folder without search permission no file can be opened, even if it can be listed.
  if (::faccessat(root_fd, path.c_str(), X_OK, AT_EACCESS) != 0) return;
  const std::uint64_t most = folder.wanted * kMostListed;
  std::uint64_t seen = 0;
  std::vector<std::uint64_t> names;
  const int error = each_entry(root_fd, path, [&](int, const dirent& entry) {
    if (entry.d_type == DT_REG) names.push_back(nonzero_hash(entry.d_name));
    return ++seen <= most;
  });
  if (error == 0 && seen <= most) folder.names = NameSet(names);
}

}  // namespace

std::vector<std::uint64_t> not_listed(int root_fd, std::uint64_t count, const PathOf& path) {
  ListedFolders folders = count_by_folder(count, path);
  std::vector<ListedFolders::value_type*> worth;
  for (auto& folder : folders)
    if (folder.second.wanted >= kWorthListing) worth.push_back(&folder);
  for_each_at_once(worth.size(), [&](std::size_t i) { list(root_fd, worth[i]->first, worth[i]->second); });

  std::vector<std::vector<std::uint64_t>> left((count + kFilesPerTask - 1) / kFilesPerTask);
  for_each_at_once(left.size(), [&](std::size_t block) {
    auto last = folders.cend();
    const std::uint64_t end = std::min(count, (block + 1) * kFilesPerTask);
    for (std::uint64_t row = block * kFilesPerTask; row < end; ++row) {
      const std::string_view text = path(row), folder = folder_of(text);
      if (last == folders.cend() || last->first != folder) last = std::as_const(folders).find(folder);
      if (last == folders.cend() || !last->second.names.contains(nonzero_hash(text.substr(folder.size()))))
        left[block].push_back(row);
    }
  });
  std::vector<std::uint64_t> out;
  for (const auto& block : left) out.insert(out.end(), block.begin(), block.end());
  return out;
}

}  // namespace headrace::server::source
