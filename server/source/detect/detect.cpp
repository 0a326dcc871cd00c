#include "server/source/detect/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "clientlib/base/human.h"
#include "server/remote/url.h"
#include "server/source/detect/proposal.h"
#include "server/source/files/folder_walk.h"
#include "server/store/store.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

/// Most entries checked in one class folder: if it begins with more files of other types, it is not one.
constexpr int kMostLooks = 10'000;

bool holds_image(const fs::path& folder) {
  std::error_code status;
  int looks = 0;
  for (fs::recursive_directory_iterator entry(folder, status), end; !status && entry != end;
       entry.increment(status)) {
    if (is_image_name(entry->path().filename().string())) return true;
    if (++looks == kMostLooks) return false;
  }
  return false;
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names = names_in(folder);
  std::error_code status;
  std::erase_if(names, [&](const std::string& name) { return !fs::is_directory(folder / name, status); });
  return names;
}

/// One class folder with an image is enough: opening the source names those without.
bool is_image_folder(const fs::path& folder) {
  const auto names = folders_in(folder);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return holds_image(folder / name); });
}

/// For folders without images, which the user may regard as classes.
std::string without_images(const fs::path& path) {
  constexpr std::size_t kMostNames = 10;
  std::vector<std::string> names = folders_in(path);
  if (names.empty()) return {};
  const std::size_t total = names.size();
  names.resize(std::min(total, kMostNames));
  return fmt::format(". Its folder{} no .jpg, .jpeg or .png: {}{}", total == 1 ? " holds" : "s hold",
                     fmt::join(names, ", "), total > kMostNames ? ", ..." : "");
}

std::optional<Proposal> image_folders(const fs::path& folder) {
  const auto source = [](const fs::path& path) {
    return fmt::format("{{type: image_folder, path: {}}}", quoted(path));
  };
  std::vector<ProposedStream> parts;
  for (const char* name : kSetFolders) {
    const bool training = parts.empty() && std::string_view(name) == "train";
    if (is_image_folder(folder / name))
      parts.push_back({name, source(folder / name), training, crop_images(training)});
  }
  if (!parts.empty() && parts[0].training)
    return compose("image folders, a folder per class, in " + count_of(parts.size(), "set"), parts);
  if (!is_image_folder(folder)) return std::nullopt;
  return compose("images, a folder per class", {{"train", source(folder), true, crop_images(true)}});
}

/// Images without class folders are pairs with one field; so they have no label.
std::optional<Proposal> images_without_classes(const fs::path& folder) {
  if (!holds_image(folder)) return std::nullopt;
  auto out =
      compose("images without class folders, so without labels",
              {{"train", fmt::format("{{type: paired_folders, fields: {{image: {}}}}}", quoted(folder)), true,
                crop_images(true)}});
  out.notes.push_back(
      "for labels, put the images into one folder per class, as in cat/1.jpg, or list them with their labels "
      "in a "
      ".csv");
  return out;
}

/// Pairs of files named as in the MNIST family: <set>-images-idx3-ubyte[.gz], <set>-labels-idx1-…
std::optional<Proposal> idx_files(const fs::path& folder) {
  std::vector<ProposedStream> parts;
  for (const std::string& images : names_in(folder)) {
    const auto at = images.find("images");
    if (at == std::string::npos || images.find("idx3") == std::string::npos) continue;
    for (const char* ending : {"", ".gz"}) {
      std::string labels = images.ends_with(".gz") ? images.substr(0, images.size() - 3) : images;
      labels.replace(at, 6, "labels");
      labels.replace(labels.find("idx3"), 4, "idx1");
      labels += ending;
      std::error_code status;
      if (!fs::exists(folder / labels, status)) continue;
      const bool training = images.find("train") != std::string::npos;
      std::string name = training ? "train" : "test";
      if (std::any_of(parts.begin(), parts.end(),
                      [&](const ProposedStream& part) { return part.name == name; }))
        continue;
      parts.push_back({std::move(name),
                       fmt::format("{{type: idx, images: {}, labels: {}}}", quoted(folder / images),
                                   quoted(folder / labels)),
                       training, kAsTheyAre});
      break;
    }
  }
  if (parts.empty()) return std::nullopt;
  std::sort(parts.begin(), parts.end(),
            [](const ProposedStream& a, const ProposedStream& b) { return a.training > b.training; });
  return compose(fmt::format("IDX files, {} of images with their labels", parts.size()), parts);
}

std::optional<Proposal> cifar_files(const fs::path& folder) {
  std::error_code status;
  const bool ten = fs::exists(folder / "data_batch_1.bin", status);
  const bool hundred = fs::exists(folder / "train.bin", status);
  if (!ten && !hundred) return std::nullopt;
  constexpr const char* kCrop =
      "    batch_size: 256\n"
      "    transforms:\n"
      "      - random_crop: {size: 32, padding: 4}\n"
      "      - random_horizontal_flip\n";
  std::vector<ProposedStream> parts{
      {"train", fmt::format("{{type: cifar, path: {}}}", quoted(folder)), true, kCrop}};
  if (fs::exists(folder / (ten ? "test_batch.bin" : "test.bin"), status))
    parts.push_back(
        {"test", fmt::format("{{type: cifar, path: {}, set: test}}", quoted(folder)), false, kAsTheyAre});
  return compose(fmt::format("CIFAR-{}, binary version", ten ? 10 : 100), parts);
}

/// A database that headrace pack wrote; its source checks whether it is complete.
Result<Proposal> lmdb(const fs::path& folder) {
  const auto found = store::inspect(folder);
  if (!found) return fail(found.error());
  const auto& fields = found->meta.fields;
  const bool sizes_differ = std::any_of(fields.begin(), fields.end(), [](const SourceField& field) {
    return field.is_image() && field.height == 0;
  });
  return compose(
      fmt::format("a database that headrace pack wrote, {}", store::name_of(found->meta.options.storing)),
      {{"train", fmt::format("{{type: lmdb, path: {}}}", quoted(folder.string())), true,
        sizes_differ ? crop_images(true) : kAsTheyAre}});
}

}  // namespace

bool is_dataset_file(const fs::path& path) {
  static constexpr std::array<std::string_view, 3> kEndings{".tar", ".npy", ".npz"};
  return std::find(kEndings.begin(), kEndings.end(), path.extension().string()) != kEndings.end() ||
         is_manifest_name(path);
}

Result<Proposal> propose(const fs::path& given) {
  if (remote::is_url(given.string())) return propose_url(given.string());
  std::error_code status;
  const fs::path path = fs::absolute(given, status).lexically_normal();
  const auto refuse = [&given](const std::string& what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", given.string(), what));
  };
  const auto kind = fs::status(path, status);
  if (kind.type() == fs::file_type::not_found)
    return refuse("no such file or folder; correct the path, or mount it");
  if (fs::is_directory(kind)) fs::directory_iterator(path, status);  // only to see whether it can be read
  if (status) return refuse(fmt::format("{}; give this user the right to read it", status.message()));
  if (!fs::is_directory(kind) && !is_dataset_file(path))
    return refuse(
        "expected a folder, a .tar, .npy, .npz, .csv, .tsv, .jsonl or .txt file, or a .yaml or .yml "
        "configuration");
  if (fs::exists(path / "data.mdb", status) && !fs::exists(path / "meta_info.txt", status)) return lmdb(path);
  for (const auto& look : {cifar_files, idx_files, shard_files, array_files, manifest_files, paired_images,
                           image_folders, images_without_classes})
    if (auto found = look(path)) return std::move(*found);
  return refuse(
      "nothing that a source reads. Looked for: folders of .jpg, .jpeg and .png, one per class (or train/ "
      "and val/ or test/ with such folders); pairs of images (folders hr and lr, images and masks, or names "
      "that "
      "end so); .csv, .tsv, .jsonl and .txt files that list images which are there; *images-idx3* with "
      "*labels-idx1* (MNIST); data_batch_1.bin or train.bin (CIFAR); .tar files (WebDataset), here or in "
      "train/ "
      "and val/ or test/; .npy and .npz files; data.mdb (headrace pack, or BasicSR with meta_info.txt)" +
      without_images(path));
}

std::vector<std::string> notes_on(const fs::path& given, const Proposal& proposal) {
  static constexpr std::array<std::string_view, 6> kEndings{".csv",    ".tsv", ".jsonl",
                                                            ".ndjson", ".npy", ".npz"};
  constexpr std::size_t kMostNames = 5, kMostProbes = 3;
  std::vector<std::string> notes = proposal.notes;
  std::error_code status;
  if (remote::is_url(given.string()) || !fs::is_directory(given, status)) return notes;
  const fs::path folder = fs::absolute(given, status).lexically_normal();
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [&](const std::string& name) {
    const auto ending = fs::path(name).extension().string();
    return std::find(kEndings.begin(), kEndings.end(), ending) == kEndings.end() ||
           proposal.config.find(quoted((folder / name).string())) != std::string::npos;
  });
  if (!names.empty()) {
    const std::size_t total = names.size();
    const std::string first = (folder / names.front()).string();
    names.resize(std::min(total, kMostNames));
    notes.push_back(fmt::format(
        "not in it: {}{}; `headrace check {}` says whether it is a list of samples", fmt::join(names, ", "),
        total > kMostNames ? fmt::format(" and {} more", total - kMostNames) : "", first));
  }
  if (proposal.config.find("type: image_folder") == std::string::npos) return notes;
  std::vector<std::string> classes = folders_in(folder);
  classes.resize(std::min(classes.size(), kMostProbes));
  for (const std::string& name : classes)
    if (const auto pairs = paired_images(folder / name)) {
      notes.push_back(
          fmt::format("{} is read as a class, although it looks like {}: `headrace check {}` proposes a "
                      "configuration for it",
                      name, pairs->found, (folder / name).string()));
      break;
    }
  return notes;
}

}  // namespace headrace::server::source
