#include "server/source/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "server/source/folder_walk.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

/// One source and the stream over it.
struct Part {
  std::string name;    ///< of the stream; the source is "<name>_set"
  std::string source;  ///< YAML flow mapping
  bool training;
  std::string stream;  ///< YAML block lines of the stream, 4 columns in
};

Proposal compose(std::string found, const std::vector<Part>& parts) {
  Proposal out{std::move(found), "# yaml-language-server: $schema=headrace.schema.json\nsources:\n"};
  for (const Part& part : parts) out.config += fmt::format("  {}_set: {}\n", part.name, part.source);
  out.config += "streams:\n";
  for (const Part& part : parts) {
    out.config += fmt::format("  {}:\n    source: {}_set\n", part.name, part.name);
    if (!part.training) out.config += "    shuffle: false\n";
    out.config += part.stream;
  }
  return out;
}

/// A YAML double-quoted scalar.
std::string quoted(const fs::path& path) {
  std::string out = "\"";
  for (const char c : path.string()) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code status;
  for (fs::directory_iterator entry(folder, status), end; !status && entry != end; entry.increment(status))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

constexpr const char* kCropImages =
    "    batch_size: 64\n"
    "    transforms:\n"
    "      - random_resized_crop: {size: 224}\n"
    "      - random_horizontal_flip\n";
constexpr const char* kShowImages =
    "    batch_size: 64\n"
    "    transforms:\n"
    "      - resize: {size: 256}\n"
    "      - center_crop: {size: 224}\n";
constexpr const char* kAsTheyAre = "    batch_size: 256\n";

/// Class folders with at least one image in the first of them.
bool is_image_folder(const fs::path& folder) {
  std::error_code status;
  for (const std::string& name : names_in(folder)) {
    if (!fs::is_directory(folder / name, status)) continue;
    for (fs::recursive_directory_iterator entry(folder / name, status), end; !status && entry != end;
         entry.increment(status))
      if (is_image_name(entry->path().filename().string())) return true;
    return false;
  }
  return false;
}

std::optional<Proposal> image_folders(const fs::path& folder) {
  const auto source = [](const fs::path& path) {
    return fmt::format("{{type: image_folder, path: {}}}", quoted(path));
  };
  std::vector<Part> parts;
  for (const char* name : {"train", "val", "valid", "validation", "test"}) {
    const bool training = parts.empty() && std::string_view(name) == "train";
    if (is_image_folder(folder / name))
      parts.push_back({name, source(folder / name), training, training ? kCropImages : kShowImages});
  }
  if (!parts.empty() && parts[0].training)
    return compose(fmt::format("image folders, a folder per class, in {} sets", parts.size()), parts);
  if (!is_image_folder(folder)) return std::nullopt;
  return compose("images, a folder per class", {{"train", source(folder), true, kCropImages}});
}

/// Pairs of files as the sets of the MNIST family name them: <set>-images-idx3-ubyte[.gz],
/// <set>-labels-idx1-…
std::optional<Proposal> idx_files(const fs::path& folder) {
  std::vector<Part> parts;
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
      if (std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return part.name == name; }))
        continue;
      parts.push_back({std::move(name),
                       fmt::format("{{type: idx, images: {}, labels: {}}}", quoted(folder / images),
                                   quoted(folder / labels)),
                       training, kAsTheyAre});
      break;
    }
  }
  if (parts.empty()) return std::nullopt;
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.training > b.training; });
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
  std::vector<Part> parts{{"train", fmt::format("{{type: cifar, path: {}}}", quoted(folder)), true, kCrop}};
  if (fs::exists(folder / (ten ? "test_batch.bin" : "test.bin"), status))
    parts.push_back(
        {"test", fmt::format("{{type: cifar, path: {}, set: test}}", quoted(folder)), false, kAsTheyAre});
  return compose(fmt::format("CIFAR-{}, binary version", ten ? 10 : 100), parts);
}

}  // namespace

Result<Proposal> propose(const fs::path& path) {
  std::error_code status;
  const fs::path folder = fs::absolute(path, status).lexically_normal();
  if (!fs::is_directory(folder, status))
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: {}", path.string(),
                            fs::exists(folder, status) ? "is no folder, and no .yaml or .yml configuration"
                                                       : "there is no such folder or file"));
  for (const auto& look : {cifar_files, idx_files, image_folders})
    if (auto found = look(folder)) return std::move(*found);
  return fail(
      ErrorCode::kDatasetInvalid,
      fmt::format("{}: nothing that a source reads. Looked for: folders of .jpg, .jpeg and .png, one per "
                  "class (or train/ and val/ or test/ with such folders); *images-idx3* with *labels-idx1* "
                  "(MNIST); data_batch_1.bin or train.bin (CIFAR)",
                  path.string()));
}

}  // namespace headrace::server::source
