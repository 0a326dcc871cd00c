#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "server/source/files/at_once.h"
#include "server/source/files/open_files.h"
#include "server/source/shards/shard_list.h"
#include "server/source/shards/shard_set.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

class LocalShards final : public ShardSet {
 public:
  LocalShards(std::string root, ring::UniqueFd fd, ReadPolicy policy, std::vector<ShardStamp> shards)
      : ShardSet(std::move(root)),
        root_fd_(std::move(fd)),
        policy_(std::move(policy)),
        files_(shards.size(), open_files_limit()) {
    shards_ = std::move(shards);
  }

  [[nodiscard]] std::size_t at_once() const override { return processors(); }
  [[nodiscard]] Result<ShardIndex> index(std::size_t shard, const ShardRule& rule,
                                         Problems& problems) const override {
    const auto fd = open_unchanged(file_of(shard), shards_[shard].bytes);
    if (!fd) return fail(fd.error().error);
    const std::string shown = fmt::format("{}/{}", root(), shards_[shard].name);
    auto tar = TarReader::open(fd->get(), shards_[shard].bytes, shown);
    if (!tar) return fail(std::move(tar.error()));
    return index_shard(std::move(*tar), shown, rule, problems);
  }
  [[nodiscard]] Result<void> read(std::size_t shard, std::uint64_t offset,
                                  std::span<std::uint8_t> out) const override {
    const FileRef file = file_of(shard);
    const auto open = [&] { return open_unchanged(file, shards_[shard].bytes); };
    const auto attempt = [&]() -> Attempt<void> {
      const auto fd = files_.get(shard, std::cref(open));
      if (!fd) return tl::make_unexpected(fd.error());
      return read_range((*fd)->get(), offset, out, policy_, file);
    };
    return with_retries(policy_, std::cref(attempt));
  }

 private:
  [[nodiscard]] FileRef file_of(std::size_t shard) const {
    return {root_fd_.get(), shards_[shard].name.c_str(), root()};
  }

  const ring::UniqueFd root_fd_;
  const ReadPolicy policy_;
  mutable OpenFiles files_;
};

}  // namespace

Result<std::unique_ptr<const ShardSet>> find_local_shards(const std::vector<std::string>& paths,
                                                          const ReadPolicy& policy) {
  auto listed = list_shards(paths);
  if (!listed) return fail(std::move(listed.error()));
  fs::path root = listed->front().parent_path();
  for (const fs::path& shard : *listed) {
    const auto at = std::mismatch(root.begin(), root.end(), shard.begin(), shard.end()).first;
    fs::path common;
    std::for_each(root.begin(), at, [&](const fs::path& part) { common /= part; });
    root = std::move(common);
  }
  ring::UniqueFd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: {}; correct the source's `path`", root.string(), std::strerror(errno)));
  Problems problems;
  std::vector<ShardStamp> shards;
  for (const fs::path& shard : *listed) {
    struct stat status {};
    if (::stat(shard.c_str(), &status) != 0)
      problems.add(fmt::format("{}: {}; correct the source's `path`", shard.string(), std::strerror(errno)));
    else if (!S_ISREG(status.st_mode))
      problems.add(fmt::format("{}: is not a regular file", shard.string()));
    shards.push_back({shard.lexically_relative(root).string(), static_cast<std::uint64_t>(status.st_size),
                      status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec});
  }
  if (!problems.none()) return fail(problems.error(ErrorCode::kDatasetInvalid));
  return std::make_unique<LocalShards>(root.string(), std::move(fd), policy, std::move(shards));
}

}  // namespace headrace::server::source
