// What the kinds of detect.h's search have in common: parts of a dataset, put together as a configuration.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/source/detect/detect.h"
#include "server/source/shards/tar_reader.h"

namespace headrace::server::source {

/// Training parts first; of parts with one name the first.
Proposal compose(std::string found, std::vector<ProposedStream> parts);

/// The configuration of these parts.
std::string config_of(const std::vector<ProposedStream>& parts);

/// The lines of a stream of images that belong together, cut alike; `side`: of the smallest image, 0 if not
/// known.
std::string crop_together(bool training, bool mask, std::int32_t side);

/// A YAML double-quoted scalar.
std::string quoted(const std::string& text);
/// Sorted.
std::vector<std::string> names_in(const std::filesystem::path& folder);
/// "train", "val" or "test" if that, or a longer word for it, is one of the words of `name`; else empty.
std::string set_in(std::string_view name);

/// The folders that a dataset's sets lie in; the one to learn from first.
inline constexpr std::array<const char*, 5> kSetFolders{"train", "val", "valid", "validation", "test"};

/// The lines of a stream of images of many sizes, to learn from or to look at, cut to `side` x `side`.
std::string crop_images(bool training, std::int32_t side = 224);
/// Of samples that need nothing.
inline constexpr const char* kAsTheyAre = "    batch_size: 256\n";

/// WebDataset shards: a .tar file, a folder of them, or train/, val/, test/ with such files.
std::optional<Proposal> shard_files(const std::filesystem::path& path);
/// What a shard's first sample tells of its source.
struct ShardMembers {
  std::string keys;  ///< what is the image and what the class, with a comma before
  std::string note;  ///< that its folder's name is no class; empty: it has another, or lies in no folder
};
ShardMembers members_of(Result<TarReader> shard);
/// What lies behind a URL, by its name; of shards also by the first one, of s3://bucket/folder by its
/// listing. The configuration has the URL as it was given. kDatasetInvalid: nothing that a source reads.
/// Remote's errors.
Result<Proposal> propose_url(const std::string& url);
/// A .npy or .npz file, or a folder of either.
std::optional<Proposal> array_files(const std::filesystem::path& path);
/// A manifest whose first row names an image that is there, or a folder of them.
std::optional<Proposal> manifest_files(const std::filesystem::path& path);
/// Images that belong together by name: in folders or databases called hr, lr, images, masks, ..., here or in
/// train/, val/, test/; or in one folder, their names ending so. Or one database that BasicSR made.
std::optional<Proposal> paired_images(const std::filesystem::path& path);

/// Of manifests.
bool is_manifest_name(const std::filesystem::path& path);

}  // namespace headrace::server::source
