#include "server/source/shards/shard_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <regex>
#include <set>

#include "server/source/problems.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostShards = 1'000'000;

/// Substitutes the numbers of the first range, then expands the rest.
Result<void> expand(const std::string& before, const std::string& rest, const std::string& pattern,
                    std::vector<std::string>& out) {
  static const std::regex kRange(R"(\{([0-9]{1,12})\.\.([0-9]{1,12})\})");
  std::smatch match;
  if (!std::regex_search(rest, match, kRange)) {
    if (out.size() == kMostShards)
      return refuse(pattern, fmt::format("means more than {} shards", kMostShards));
    out.push_back(before + rest);
    return {};
  }
  const std::string first = match[1], last = match[2];
  const auto from = std::stoull(first), to = std::stoull(last);
  if (from > to) return refuse(pattern, fmt::format("the range {} runs backwards", match.str()));
  // The shell's rule: with a leading zero on either side, all numbers have as many digits as the longer one.
  const bool padded = (first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0');
  const std::size_t width = padded ? std::max(first.size(), last.size()) : 0;
  for (auto number = from; number <= to; ++number) {
    auto done = expand(fmt::format("{}{}{:0{}}", before, match.prefix().str(), number, width), match.suffix(),
                       pattern, out);
    if (!done) return done;
  }
  return {};
}

bool is_compressed_tar(const std::string& name) {
  static constexpr std::array<std::string_view, 7> kEndings{".tar.gz", ".tgz",     ".tar.zst", ".tar.xz",
                                                            ".txz",    ".tar.bz2", ".tar.lz4"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

Result<void> list_folder_of_shards(const fs::path& folder, std::vector<fs::path>& out) {
  std::vector<fs::path> found;
  std::size_t compressed = 0;
  std::error_code status;
  for (fs::directory_iterator entry(folder, status), end; !status && entry != end; entry.increment(status)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".tar") && !name.starts_with(".")) found.push_back(entry->path());
    compressed += is_compressed_tar(name) ? 1 : 0;
  }
  if (status) return refuse(folder.string(), status.message());
  if (found.empty() && compressed > 0)
    return refuse(folder.string(),
                  fmt::format("holds {} compressed tar files and no .tar: unpack them", compressed));
  if (found.empty()) return refuse(folder.string(), "holds no .tar file; correct the source's `path`");
  std::sort(found.begin(), found.end());
  out.insert(out.end(), found.begin(), found.end());
  return {};
}

}  // namespace

Result<std::vector<std::string>> expand_ranges(const std::string& pattern, const std::string& shown) {
  std::vector<std::string> out;
  if (auto done = expand("", pattern, shown, out); !done) return fail(std::move(done.error()));
  return out;
}

Result<std::vector<fs::path>> list_shards(const std::vector<std::string>& paths) {
  std::vector<fs::path> out;
  for (const std::string& path : paths) {
    std::error_code status;
    auto listed = Result<void>();
    if (fs::is_directory(path, status)) {
      listed = list_folder_of_shards(path, out);
    } else if (fs::exists(path, status)) {
      out.emplace_back(path);
    } else {
      const auto names = expand_ranges(path, path);
      if (!names) return fail(names.error());
      out.insert(out.end(), names->begin(), names->end());
    }
    if (!listed) return fail(std::move(listed.error()));
  }
  if (out.empty()) return fail(ErrorCode::kDatasetInvalid, "no shards are named");
  std::set<std::string> seen;
  for (fs::path& shard : out) {
    shard = fs::absolute(shard).lexically_normal();
    if (!seen.insert(shard.string()).second) return refuse(shard.string(), "is named twice");
  }
  return out;
}

}  // namespace headrace::server::source
