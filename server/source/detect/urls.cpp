#include <fmt/format.h>

#include <algorithm>

#include "server/remote/remote.h"
#include "server/remote/url.h"
#include "server/source/detect/proposal.h"
#include "server/source/shards/block_reader.h"
#include "server/source/shards/shard_list.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using remote::Remote;

Proposal one(std::string found, const std::string& name, const std::string& source) {
  std::string set = set_in(name);
  if (set.empty()) set = "train";
  const bool training = set == "train";
  return compose(std::move(found), {{set, source, training, crop_images(training)}});
}

Result<Proposal> shards(const std::string& url, const std::string& first, const Remote& remote) {
  const auto stat = remote.stat(first);
  if (!stat) return fail(stat.error());
  BlockReader blocks(stat->bytes, [&](std::uint64_t offset, std::span<std::uint8_t> out) {
    return remote.read(first, *stat, offset, out);
  });
  auto tar = TarReader::open(
      [&blocks](std::uint64_t offset, std::span<std::uint8_t> out) { return blocks.read(offset, out); },
      stat->bytes, remote::shown(first));
  if (!tar) return fail(std::move(tar.error()));
  const ShardMembers members = members_of(std::move(tar));
  Proposal out = one("WebDataset shards", remote::name_of(url),
                     fmt::format("{{type: webdataset, path: {}{}}}", quoted(url), members.keys));
  if (!members.note.empty()) out.notes.push_back(members.note);
  return out;
}

Result<Proposal> bucket_folder(const std::string& url, const Remote& remote) {
  const auto listed = remote.list(url.ends_with('/') ? url : url + "/", false);
  if (!listed) return fail(listed.error());
  const auto shard = std::find_if(listed->objects.begin(), listed->objects.end(),
                                  [](const auto& object) { return object.key.ends_with(".tar"); });
  if (shard != listed->objects.end())
    return shards(url, fmt::format("s3://{}/{}", remote::s3_name(url).bucket, shard->key), remote);
  if (!listed->prefixes.empty())
    return one("images, a folder per class", remote::name_of(url),
               fmt::format("{{type: image_folder, path: {}}}", quoted(url)));
  return fail(ErrorCode::kDatasetInvalid, url + ": holds neither .tar objects nor folders of classes");
}

}  // namespace

Result<Proposal> propose_url(const std::string& url) {
  const auto remote = Remote::make({});
  if (!remote) return fail(remote.error());
  const fs::path name = remote::name_of(url);
  if (name.extension() == ".tar") {
    const auto names = expand_ranges(url, remote::shown(url));
    if (!names) return fail(names.error());
    return shards(url, names->front(), **remote);
  }
  if (is_manifest_name(name))
    return one("a list of images", name.string(), fmt::format("{{type: manifest, path: {}}}", quoted(url)));
  if (name.extension() == ".npz")
    return compose("numpy arrays",
                   {{"train", fmt::format("{{type: npy, path: {}}}", quoted(url)), true, kAsTheyAre}});
  if (remote::is_s3(url)) return bucket_folder(url, **remote);
  return fail(ErrorCode::kDatasetInvalid,
              remote::shown(url) +
                  ": HTTP has no listings of folders; name a .tar (or a pattern of them), a list of "
                  "images (.csv, .tsv, .jsonl, .txt), an .npz, or a folder by s3://");
}

}  // namespace headrace::server::source
