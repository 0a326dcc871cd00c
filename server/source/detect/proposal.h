// Shared by the kinds of search in detect.h: parts of a dataset, combined into a configuration.
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

/// Orders training parts first; of parts with the same name only the first is kept.
Proposal compose(std::string found, std::vector<ProposedStream> parts);

/// The configuration of these parts.
std::string config_of(const std::vector<ProposedStream>& parts);

/// The lines of a stream of images that belong together and are cropped alike; `side`: the smallest image's,
/// 0 if it is not known.
std::string crop_together(bool training, bool mask, std::int32_t side);

/// A YAML double-quoted scalar.
std::string quoted(const std::string& text);
/// Sorted.
std::vector<std::string> names_in(const std::filesystem::path& folder);
/// "train", "val" or "test" if that, or a longer word for it, is a word of `name`; else empty.
std::string set_in(std::string_view name);

/// The folder names of a dataset's sets, training set first.
inline constexpr std::array<const char*, 5> kSetFolders{"train", "val", "valid", "validation", "test"};

/// The lines of a stream of images of many sizes, for training or evaluation, cropped to `side` x `side`.
std::string crop_images(bool training, std::int32_t side = 224);
/// For samples that need no transforms.
inline constexpr const char* kAsTheyAre = "    batch_size: 256\n";

/// WebDataset shards: a .tar file, a folder of them, or train/, val/, test/ with such files.
std::optional<Proposal> shard_files(const std::filesystem::path& path);
/// What a shard's first sample shows about its source.
struct ShardMembers {
  std::string keys;  ///< the keys for the image and the class, after a comma
  /// Says that its folder's name is not a class; empty: it has a class, or is in no folder.
  std::string note;
};
ShardMembers members_of(Result<TarReader> shard);
/// Judges a URL by its name; shards also by the first one, s3://bucket/folder by its listing. The
/// configuration has the URL as it was given. kDatasetInvalid: nothing that a source reads. Also Remote's
/// errors.
Result<Proposal> propose_url(const std::string& url);
/// A .npy or .npz file, or a folder of either.
std::optional<Proposal> array_files(const std::filesystem::path& path);
/// A manifest whose first row names an existing image, or a folder of such manifests.
std::optional<Proposal> manifest_files(const std::filesystem::path& path);
/// Images that belong together by name: in folders or databases called hr, lr, images, masks, ..., here or in
/// train/, val/, test/; or in one folder, with such suffixes. Or a single BasicSR database.
std::optional<Proposal> paired_images(const std::filesystem::path& path);

/// Whether it has a manifest's extension.
bool is_manifest_name(const std::filesystem::path& path);

}  // namespace headrace::server::source
