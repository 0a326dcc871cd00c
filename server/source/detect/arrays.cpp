#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "server/source/detect/proposal.h"
#include "server/source/formats/npy.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

/// More .npy files in one folder mean one file per sample, which no source reads.
constexpr std::size_t kMostFiles = 16;

struct Candidate {
  std::string name;   ///< of the array or its file
  std::string value;  ///< its name in the configuration
  std::optional<NpyHeader> header;
};

/// Lower case letters, digits and _; without the word for the set.
std::string field_name(const std::string& name) {
  std::string out, word;
  const auto end_word = [&] {
    if (!word.empty() && set_in(word).empty()) out += (out.empty() ? "" : "_") + word;
    word.clear();
  };
  for (const char c : name) {
    const bool large = c >= 'A' && c <= 'Z';
    const bool kept = large || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (kept) word += large ? static_cast<char>(c - 'A' + 'a') : c;
    if (!kept) end_word();
  }
  end_word();
  return out.empty() ? "values" : out.substr(0, 47);
}

template <std::size_t N>
bool is_one_of(const std::string& name, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), name) != words.end();
}

bool is_class(const Candidate& candidate) {
  static constexpr std::array<std::string_view, 7> kWords{"label", "labels",  "y",      "target",
                                                          "class", "classes", "targets"};
  if (!is_one_of(field_name(candidate.name), kWords)) return false;
  return !candidate.header || (is_integer(candidate.header->dtype) && candidate.header->shape.size() == 1);
}

/// The source's `fields` as a YAML flow mapping.
std::string fields_of(const std::vector<Candidate>& candidates) {
  std::map<std::string, std::string> fields;
  bool image = false;
  for (const Candidate& candidate : candidates) {
    const bool pixels = candidate.header && pixel_shape(*candidate.header);
    std::string name = field_name(candidate.name);
    if (is_class(candidate)) {
      name = "label";
    } else if (pixels && !image) {
      name = "image";
      image = true;
    } else if (name == "label") {
      name = "target";
    }
    fields.emplace(name, candidate.value);
  }
  std::vector<std::string> parts;
  parts.reserve(fields.size());
  for (const auto& [field, value] : fields) parts.push_back(fmt::format("{}: {}", field, quoted(value)));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

/// Adds a part for each set that the names indicate; `before`: the source's keys before `fields`.
void add_parts(const std::vector<Candidate>& candidates, const std::string& set, const std::string& before,
               std::vector<ProposedStream>& parts) {
  std::map<std::string, std::vector<Candidate>> sets;
  for (const Candidate& candidate : candidates) sets[set_in(candidate.name)].push_back(candidate);
  for (const auto& [own, members] : sets) {
    std::string name = own.empty() ? set : own;
    if (name.empty()) name = "train";
    parts.push_back({name, fmt::format("{{type: npy, {}fields: {}}}", before, fields_of(members)),
                     name == "train", kAsTheyAre});
  }
}

void add_npz(const fs::path& path, std::vector<ProposedStream>& parts) {
  std::vector<Candidate> candidates;
  const auto arrays = open_npz(path, {}, NpzLoad::kHeaders);
  if (arrays)
    for (const NpyArray& array : *arrays) candidates.push_back({array.name, array.name, array.header});
  const std::string before = fmt::format("path: {}, ", quoted(path.string()));
  add_parts(candidates, set_in(path.stem().string()), before, parts);
  // The error appears when it is opened.
  if (candidates.empty())
    parts.push_back(
        {"train", fmt::format("{{type: npy, path: {}}}", quoted(path.string())), true, kAsTheyAre});
}

}  // namespace

std::optional<Proposal> array_files(const fs::path& path) {
  std::error_code status;
  const bool folder = fs::is_directory(path, status);
  std::vector<fs::path> files;
  for (const std::string& name : folder ? names_in(path) : std::vector<std::string>{""})
    files.push_back(folder ? path / name : path);
  std::vector<ProposedStream> parts;
  std::vector<Candidate> candidates;
  for (const fs::path& file : files) {
    if (file.extension() == ".npz") add_npz(file, parts);
    if (file.extension() != ".npy") continue;
    const auto array = open_npy(file);
    candidates.push_back(
        {file.stem().string(), file.string(), array ? std::optional(array->header) : std::nullopt});
    if (candidates.size() > kMostFiles) return std::nullopt;
  }
  add_parts(candidates, "", "", parts);
  if (parts.empty()) return std::nullopt;
  return compose("numpy arrays", std::move(parts));
}

}  // namespace headrace::server::source
