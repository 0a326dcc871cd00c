#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <set>

#include "server/remote/url.h"
#include "server/source/files/at_once.h"
#include "server/source/problems.h"
#include "server/source/shards/block_reader.h"
#include "server/source/shards/shard_list.h"
#include "server/source/shards/shard_set.h"

namespace headrace::server::source {
namespace {

using remote::Remote;

class RemoteShards final : public ShardSet {
 public:
  RemoteShards(std::string root, std::vector<std::string> urls, std::vector<remote::Stat> stats,
               std::vector<ShardStamp> shards, std::shared_ptr<const Remote> remote)
      : ShardSet(std::move(root)),
        urls_(std::move(urls)),
        stats_(std::move(stats)),
        remote_(std::move(remote)) {
    shards_ = std::move(shards);
  }

  [[nodiscard]] bool stamped() const override {
    return std::none_of(shards_.begin(), shards_.end(), [](const auto& shard) { return shard.tag.empty(); });
  }
  [[nodiscard]] std::size_t at_once() const override {
    constexpr std::size_t kMost = 64;  // each may hold a block of BlockReader::kLargest
    return std::min<std::size_t>(remote_->connections(), kMost);
  }
  [[nodiscard]] Result<ShardIndex> index(std::size_t shard, const ShardRule& rule,
                                         Problems& problems) const override {
    BlockReader blocks(stats_[shard].bytes, [this, shard](std::uint64_t offset, std::span<std::uint8_t> out) {
      return read(shard, offset, out);
    });
    const std::string shown = fmt::format("{}/{}", root(), shards_[shard].name);
    auto tar = TarReader::open(
        [&blocks](std::uint64_t offset, std::span<std::uint8_t> out) { return blocks.read(offset, out); },
        stats_[shard].bytes, shown);
    if (!tar) return fail(std::move(tar.error()));
    return index_shard(std::move(*tar), shown, rule, problems);
  }
  [[nodiscard]] Result<void> read(std::size_t shard, std::uint64_t offset,
                                  std::span<std::uint8_t> out) const override {
    return remote_->read(urls_[shard], stats_[shard], offset, out);
  }

 private:
  const std::vector<std::string> urls_;
  const std::vector<remote::Stat> stats_;
  const std::shared_ptr<const Remote> remote_;
};

/// The *.tar objects directly below it.
Result<std::vector<std::string>> shards_below(std::string url, const Remote& remote) {
  if (!url.ends_with('/')) url += '/';
  auto listed = remote.list(url, false);
  if (!listed) return fail(std::move(listed.error()));
  const std::string bucket = "s3://" + remote::s3_name(url).bucket + "/";
  std::vector<std::string> out;
  for (const auto& object : listed->objects)
    if (object.key.ends_with(".tar") && !remote::name_of(bucket + object.key).starts_with("."))
      out.push_back(bucket + object.key);
  if (out.empty()) return refuse(remote::shown(url), "holds no .tar object; correct the source's `path`");
  return out;
}

Result<std::vector<std::string>> list(const std::vector<std::string>& paths, const Remote& remote) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    if (!remote::is_url(path))
      return fail(ErrorCode::kDatasetInvalid,
                  path + ": is a file, others are URLs; make a source of each kind, and `concat` them");
    auto names = expand_ranges(path, remote::shown(path));
    if (!names) return names;
    const bool one = names->size() == 1 && names->front() == path;
    if (one && remote::is_s3(path) && !path.ends_with(".tar")) {
      names = shards_below(path, remote);
      if (!names) return names;
    } else if (one && path.ends_with('/')) {
      return refuse(remote::shown(path),
                    "HTTP has no listings; name the shards, as in .../train-{000000..000146}.tar");
    }
    out.insert(out.end(), names->begin(), names->end());
  }
  return out;
}

/// The deepest common folder; empty: they are on several servers or in several buckets.
std::string common_folder(const std::vector<std::string>& shown) {
  std::string root = shown.front();
  const auto host = root.find("://") + 3;
  for (const std::string& path : shown)
    while (root.size() == shown.front().size() || !path.starts_with(root + "/")) {
      const auto slash = root.rfind('/');
      if (slash <= host) return {};
      root.resize(slash);
    }
  return root;
}

}  // namespace

Result<std::unique_ptr<const ShardSet>> find_remote_shards(const std::vector<std::string>& urls,
                                                           std::shared_ptr<const Remote> remote) {
  auto listed = list(urls, *remote);
  if (!listed) return fail(std::move(listed.error()));
  const std::size_t count = listed->size();
  std::vector<std::string> shown(count);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < count; ++i) {
    shown[i] = remote::shown((*listed)[i]);
    if (const auto query = shown[i].rfind("?..."); query != std::string::npos && !remote::is_s3((*listed)[i]))
      shown[i].resize(query);
    if (!seen.insert(shown[i]).second)
      return refuse(remote::shown((*listed)[i]),
                    "is named twice (the query after \"?\" does not distinguish shards)");
  }
  const std::string root = common_folder(shown);
  if (root.empty())
    return refuse(remote::shown(listed->front()),
                  "others are of another server or bucket; make a source of each, and `concat` them");

  std::vector<Result<remote::Stat>> found(count);
  for_each_at_once(
      count,
      [&](std::size_t i) {
        try {
          found[i] = remote->stat((*listed)[i]);
          if (found[i] && !found[i]->ranges)
            found[i] =
                refuse(remote::shown((*listed)[i]),
                       "the server does not support range requests, so no sample can be read by "
                       "itself; serve it with one that does (nginx, Apache, MinIO), or copy the files");
        } catch (const std::bad_alloc&) {
          found[i] = fail(ErrorCode::kNotEnoughMemory, shown[i] + ": no memory to read it");
        }
      },
      remote->connections());
  Problems problems;
  ErrorCode code = ErrorCode::kDatasetInvalid;
  std::vector<remote::Stat> stats;
  std::vector<ShardStamp> shards;
  for (std::size_t i = 0; i < count; ++i) {
    if (!found[i]) {
      if (code == ErrorCode::kDatasetInvalid) code = found[i].error().code;
      problems.add(found[i].error().message);
      continue;
    }
    shards.push_back({shown[i].substr(root.size() + 1), found[i]->bytes, 0, found[i]->tag});
    stats.push_back(std::move(*found[i]));
  }
  if (!problems.none()) return fail(problems.error(code));
  return std::make_unique<RemoteShards>(root, std::move(*listed), std::move(stats), std::move(shards),
                                        std::move(remote));
}

}  // namespace headrace::server::source
