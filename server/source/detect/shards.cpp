#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "clientlib/ring/unique_fd.h"
#include "server/source/detect/proposal.h"
#include "server/source/files/json_text.h"
#include "server/source/shards/shard_index.h"
#include "server/source/shards/tar_reader.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

struct FirstSample {
  std::string key;
  std::map<std::string, std::string> members;  ///< extension -> content of the short members
};

FirstSample first_sample(Result<TarReader> tar) {
  constexpr int kMostMembers = 64;
  constexpr std::uint64_t kShort = 1 << 16;
  FirstSample out;
  if (!tar) return out;
  TarMember member;
  for (int i = 0; i < kMostMembers; ++i) {
    const auto more = tar->next(member);
    if (!more || !*more) break;
    const auto name = parse_member_name(member.name);
    if (!member.file || !name) continue;
    if (!out.key.empty() && name->key != out.key) break;
    out.key = name->key;
    auto content = member.bytes <= kShort ? tar->content() : Result<std::string>();
    out.members[name->extension] = content.value_or("");
  }
  return out;
}

/// A user with class folders in a .tar expects ImageFolder's labels.
std::string note_on_folder(const std::string& key) {
  const std::string folder = fs::path(key).parent_path().filename().string();
  if (folder.empty() || folder == "." || !set_in(folder).empty()) return {};
  return fmt::format(
      "samples have no label: the name of a folder (`{}`) in a shard is not used as a label. If it is the "
      "class, put a .cls member with its number beside each image, or a .json with a `label`; or unpack the "
      "shards into one folder and serve that as an image_folder",
      folder);
}

ShardMembers members_in(const fs::path& shard) {
  const ring::UniqueFd fd(::open(shard.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  const bool file = fd && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode);
  return members_of(
      TarReader::open(fd.get(), file ? static_cast<std::uint64_t>(status.st_size) : 0, shard.string()));
}

/// "train-{000000..000146}.tar" for shards that are numbered without a gap, else a list.
std::string path_of(const fs::path& folder, const std::vector<std::string>& names, std::size_t digits_at) {
  const std::string ending = ".tar";
  const auto number = [&](const std::string& name) {
    return name.substr(digits_at, name.size() - ending.size() - digits_at);
  };
  constexpr std::size_t kMostDigits = 12;
  bool range = names.size() > 1;
  for (std::size_t i = 0; range && i < names.size(); ++i)
    range = names[i].size() == names[0].size() && !number(names[i]).empty() &&
            number(names[i]).size() <= kMostDigits &&
            std::stoull(number(names[i])) == std::stoull(number(names[0])) + i;
  if (range)
    return quoted((folder / fmt::format("{}{{{}..{}}}.tar", names[0].substr(0, digits_at),
                                        number(names.front()), number(names.back())))
                      .string());
  std::vector<std::string> paths;
  paths.reserve(names.size());
  for (const std::string& name : names) paths.push_back(quoted((folder / name).string()));
  return paths.size() == 1 ? paths[0] : fmt::format("[{}]", fmt::join(paths, ", "));
}

struct ShardNames {
  std::string stem;  ///< what their names share: the name up to the number
  std::vector<std::string> names;
};

void add_note(const ShardMembers& members, std::vector<std::string>& notes) {
  if (!members.note.empty() && notes.empty()) notes.push_back(members.note);
}

/// Adds a part for each set of shards, whose names are equal up to their numbers.
void add_parts(const fs::path& folder, const std::string& set, std::vector<ProposedStream>& parts,
               std::vector<std::string>& notes) {
  std::vector<ShardNames> sets;
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(".tar") || name.starts_with(".")) continue;
    std::string stem = name.substr(0, name.size() - 4);
    stem.resize(stem.find_last_not_of("0123456789") + 1);
    auto own =
        std::find_if(sets.begin(), sets.end(), [&](const ShardNames& one) { return one.stem == stem; });
    if (own == sets.end()) own = sets.insert(sets.end(), {std::move(stem), {}});
    own->names.push_back(name);
  }
  for (const auto& [stem, names] : sets) {
    std::string part = set.empty() ? set_in(stem) : set;
    if (part.empty()) part = "train";
    const bool training = part == "train";
    const ShardMembers members = members_in(folder / names.front());
    add_note(members, notes);
    parts.push_back(
        {part,
         fmt::format("{{type: webdataset, path: {}{}}}", path_of(folder, names, stem.size()), members.keys),
         training, crop_images(training)});
  }
}

}  // namespace

ShardMembers members_of(Result<TarReader> shard) {
  const auto [key, sample] = first_sample(std::move(shard));
  ShardMembers out;
  const bool usual = sample.contains("jpg") || sample.contains("jpeg") || sample.contains("png");
  for (const auto& [extension, content] : sample) {
    const bool image =
        extension.ends_with(".jpg") || extension.ends_with(".jpeg") || extension.ends_with(".png");
    if (usual || !image) continue;
    out.keys = fmt::format(", image: [{}]", quoted(extension));
    break;
  }
  if (sample.contains("cls")) return out;
  if (const auto found = sample.find("json"); found != sample.end()) {
    const auto json = parse_json(found->second);
    for (const char* name : {"label", "cls", "class", "class_id", "target"})
      if (json.is_object() && json.contains(name) && json[name].is_number_integer()) {
        out.keys += fmt::format(", label: json.{}", name);
        return out;
      }
  }
  out.keys += ", label: none";
  out.note = note_on_folder(key);
  return out;
}

std::optional<Proposal> shard_files(const fs::path& path) {
  std::error_code status;
  std::vector<ProposedStream> parts;
  std::vector<std::string> notes;
  if (path.extension() == ".tar" && !fs::is_directory(path, status)) {
    const ShardMembers members = members_in(path);
    add_note(members, notes);
    parts.push_back({"train",
                     fmt::format("{{type: webdataset, path: {}{}}}", quoted(path.string()), members.keys),
                     true, crop_images(true)});
  } else {
    add_parts(path, "", parts, notes);
    for (const char* folder : kSetFolders) add_parts(path / folder, set_in(folder), parts, notes);
  }
  if (parts.empty()) return std::nullopt;
  Proposal out = compose("WebDataset shards", std::move(parts));
  out.notes = std::move(notes);
  return out;
}

}  // namespace headrace::server::source
