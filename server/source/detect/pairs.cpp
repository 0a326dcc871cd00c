#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "server/decode/decoder.h"
#include "server/source/detect/proposal.h"
#include "server/source/files/folder_walk.h"
#include "server/source/formats/basicsr_lmdb.h"
#include "server/source/formats/paired_folders.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

using Folders = std::map<std::string, PairedFolder>;

/// The field that the name of a folder or file indicates; empty: none.
std::string role_in(std::string_view name) {
  static constexpr std::array<std::string_view, 15> kRoles{"hr",     "gt",    "hq",    "lr",    "lq",
                                                           "high",   "low",   "clean", "noisy", "blur",
                                                           "target", "input", "sharp", "mask",  "image"};
  std::string word, role;
  const auto end_word = [&] {
    if (word == "images" || word == "img" || word == "jpegimages") word = "image";
    if (word == "masks") word = "mask";
    // The last word counts: "image_masks".
    if (std::find(kRoles.begin(), kRoles.end(), word) != kRoles.end()) role = word;
    word.clear();
  };
  for (const char c : name) {
    const bool large = c >= 'A' && c <= 'Z';
    if (!large && (c < 'a' || c > 'z')) {
      end_word();
    } else {
      word += large ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  end_word();
  return role;
}

std::vector<std::string> images_in(const fs::path& folder) {
  std::vector<std::string> out = names_in(folder);
  std::erase_if(out, [](const std::string& name) { return !is_image_name(name); });
  return out;
}

std::string stem_of(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

/// The folder that contains images (in DIV2K, X4/0001x4.png is below it) or the database, and its first name.
struct Place {
  fs::path path;
  std::string first;
};

std::optional<Place> place_of(fs::path path) {
  constexpr int kDeepest = 3;
  for (int depth = 0; depth < kDeepest; ++depth) {
    if (BasicSrColumn::is_one(path)) {
      const auto column = BasicSrColumn::open({}, path);
      if (!column) return std::nullopt;
      const auto& listed = (*column)->listed();
      const auto first = std::min_element(listed.begin(), listed.end(),
                                          [](const auto& a, const auto& b) { return a.path < b.path; });
      return Place{path, stem_of(first->path)};
    }
    if (const auto images = images_in(path); !images.empty()) return Place{path, stem_of(images.front())};
    std::error_code status;
    fs::path below;
    for (const std::string& name : names_in(path))
      if (below.empty() && fs::is_directory(path / name, status)) below = path / name;
    if (below.empty()) return std::nullopt;
    path = below;
  }
  return std::nullopt;
}

/// Derives the name pattern of each field from its first file: "0001" and "0001x4" give {} and {}x4. False:
/// the names have nothing in common.
bool name_partners(const std::map<std::string, Place>& places, Folders& out) {
  std::string shared;
  for (const auto& [field, place] : places)
    if (shared.empty() || place.first.size() < shared.size()) shared = place.first;
  for (const auto& [field, place] : places) {
    const auto at = place.first.find(shared);
    if (at == std::string::npos) return false;
    out[field] = {.path = place.path,
                  .names = place.first.substr(0, at) + "{}" + place.first.substr(at + shared.size()),
                  .mask = field == "mask"};
  }
  return true;
}

/// For the first sample's smallest image; 0: it cannot be opened, which opening the source reports.
std::int32_t smallest_side(const Folders& folders) {
  const auto source = open_paired_folders(folders);
  Sample sample;
  if (!source || !(*source)->read(0, sample)) return 0;
  std::int32_t side = 0;
  decode::Decoder decoder;
  for (const Item& item : sample.items) {
    const auto size = decoder.open(item.image(), std::numeric_limits<std::uint32_t>::max());
    if (!size) return 0;
    const std::int32_t own = std::min(size->height, size->width);
    side = side == 0 ? own : std::min(side, own);
  }
  return side;
}

ProposedStream part_of(const std::string& set, const Folders& folders) {
  std::vector<std::string> fields;
  bool mask = false;
  for (const auto& [field, folder] : folders) {
    mask = mask || folder.mask;
    std::string text = quoted(folder.path.string());
    if (folder.names != "{}" || folder.mask) {
      text.insert(0, "{path: ");
      if (folder.names != "{}") text += ", names: " + quoted(folder.names);
      text += folder.mask ? ", mask: true}" : "}";
    }
    fields.push_back(fmt::format("{}: {}", field, text));
  }
  const bool training = set == "train";
  return {set, fmt::format("{{type: paired_folders, fields: {{{}}}}}", fmt::join(fields, ", ")), training,
          crop_together(training, mask || folders.size() == 1, smallest_side(folders))};
}

/// Adds a part for each set of folders and databases that are named by their roles.
void add_folders(const fs::path& folder, const std::string& set, std::vector<ProposedStream>& parts) {
  std::map<std::string, std::map<std::string, Place>> sets;
  for (const std::string& name : names_in(folder)) {
    std::error_code status;
    const std::string role = role_in(name);
    if (role.empty() || !fs::is_directory(folder / name, status)) continue;
    std::string own = set.empty() ? set_in(name) : set;
    if (own.empty()) own = "train";
    if (const auto place = place_of(folder / name)) sets[own].emplace(role, *place);
  }
  for (const auto& [own, places] : sets) {
    Folders folders;
    if (places.size() > 1 && name_partners(places, folders)) parts.push_back(part_of(own, folders));
  }
}

/// Names such as img_001_SRF_4_HR.png and img_001_SRF_4_LR.png: every image of the folder has such a suffix.
std::optional<Folders> ends_in(const fs::path& folder) {
  std::map<std::string, PairedFolder> out;
  for (const std::string& name : images_in(folder)) {
    const std::string stem = stem_of(name);
    const auto cut = stem.find_last_of("_-.");
    if (cut == std::string::npos || cut == 0) return std::nullopt;
    const std::string role = role_in(stem.substr(cut));
    if (role.empty()) return std::nullopt;
    out.emplace(role, PairedFolder{.path = folder, .names = "{}" + stem.substr(cut), .mask = role == "mask"});
  }
  return out.size() > 1 ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace

std::optional<Proposal> paired_images(const fs::path& path) {
  std::vector<ProposedStream> parts;
  if (BasicSrColumn::is_one(path))
    return compose("a database that BasicSR made",
                   {part_of("train", {{"image", {.path = path, .names = "{}", .mask = false}}})});
  add_folders(path, "", parts);
  if (const auto ends = ends_in(path)) parts.push_back(part_of("train", *ends));
  for (const char* folder : kSetFolders) {
    add_folders(path / folder, set_in(folder), parts);
    if (const auto ends = ends_in(path / folder)) parts.push_back(part_of(set_in(folder), *ends));
  }
  if (parts.empty()) return std::nullopt;
  return compose("images that belong together by name", std::move(parts));
}

}  // namespace headrace::server::source
