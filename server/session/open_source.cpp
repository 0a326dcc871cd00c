#include "server/session/open_source.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "server/source/cifar.h"
#include "server/source/idx.h"
#include "server/source/image_folder.h"
#include "server/source/lmdb.h"
#include "server/source/npy.h"
#include "server/source/synthetic.h"
#include "server/source/webdataset.h"

namespace headrace::server::session {
namespace {

using SourcePtr = std::shared_ptr<const source::Source>;

Result<SourcePtr> open_source(const config::SourceConfig& config) {
  if (const auto* folder = std::get_if<config::ImageFolderSource>(&config.kind))
    return source::open_image_folder(folder->path);
  if (const auto* idx = std::get_if<config::IdxSource>(&config.kind))
    return source::open_idx({idx->images, idx->labels, idx->classes});
  if (const auto* cifar = std::get_if<config::CifarSource>(&config.kind))
    return source::open_cifar({cifar->path, cifar->test ? source::CifarSet::kTest : source::CifarSet::kTrain,
                               cifar->coarse ? source::CifarLabels::kCoarse : source::CifarLabels::kFine});
  if (const auto* paired = std::get_if<config::PairedFoldersSource>(&config.kind))
    return source::open_paired_folders(paired->folders);
  if (const auto* manifest = std::get_if<config::ManifestSource>(&config.kind))
    return source::open_manifest(manifest->options);
  if (const auto* lmdb = std::get_if<config::LmdbSource>(&config.kind))
    return source::open_lmdb({lmdb->path, lmdb->verify});
  if (const auto* shards = std::get_if<config::WebDatasetSource>(&config.kind))
    return source::open_webdataset(
        {shards->paths, {shards->images, shards->label, shards->classes}, shards->index_cache, {}});
  if (const auto* npy = std::get_if<config::NpySource>(&config.kind))
    return source::open_npy_set({npy->files, npy->path, npy->arrays, npy->images, npy->classes});
  const auto& synthetic = std::get<config::SyntheticSource>(config.kind);
  return source::make_synthetic(synthetic.count, synthetic.bytes);
}

source::Split split_of(const config::SplitConfig& config) {
  if (const auto* by = std::get_if<config::SplitFractions>(&config.by))
    return source::SplitFractions{by->parts, config.seed};
  if (const auto* by = std::get_if<config::SplitClasses>(&config.by)) return source::SplitClasses{by->parts};
  return source::SplitLists{std::get<config::SplitLists>(config.by).parts};
}

}  // namespace

Result<SourcePtr> Sources::open(const std::string& name, const std::string& part) {
  if (const auto opened = open_.find(name); opened != open_.end()) return opened->second.at(part);
  const config::SourceConfig& config = configs_.at(name);
  auto whole = open_source(config);
  if (!whole) return whole;
  if (const std::string warning = (*whole)->warning(); !warning.empty())
    spdlog::warn("source `{}`: {}", name, warning);
  source::Parts parts{{"", *whole}};
  if (config.split) {
    auto divided = source::split(*whole, split_of(*config.split));
    if (!divided) return fail(std::move(divided.error()));
    parts = std::move(*divided);
  }
  return open_.emplace(name, std::move(parts)).first->second.at(part);
}

}  // namespace headrace::server::session
