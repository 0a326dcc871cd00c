#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "server/source/detect/proposal.h"
#include "server/source/files/folder_walk.h"
#include "server/source/formats/manifest_rows.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct FirstRow {
  std::vector<std::string> columns;
  std::vector<json> cells;

  [[nodiscard]] bool has(std::string_view column) const {
    return std::find(columns.begin(), columns.end(), column) != columns.end();
  }
};

FirstRow first_row(const fs::path& manifest) {
  FirstRow out;
  static_cast<void>(each_row(
      manifest, [&](const std::vector<std::string>& columns) { return out.columns = columns; },
      [&](std::uint64_t, std::span<const json> cells, const std::string& fault) {
        if (out.cells.empty() && fault.empty()) out.cells.assign(cells.begin(), cells.end());
      }));
  if (out.cells.size() != out.columns.size()) out.columns.clear();
  return out;
}

/// The columns that are used.
struct Chosen {
  std::string image;
  std::string label;   ///< empty: none
  bool usual = false;  ///< whether they need no `fields`
};

/// nullopt: no column holds an existing image.
std::optional<Chosen> choose(const fs::path& manifest, const FirstRow& row) {
  static constexpr std::array<const char*, 4> kImages{"path", "image", "file", "filename"};
  static constexpr std::array<const char*, 8> kClasses{"label",   "class",    "category", "target",
                                                       "classes", "class_id", "label_id", "species"};
  const auto is_image = [&](const json& cell) {
    if (!cell.is_string() || !is_image_name(cell.get_ref<const std::string&>())) return false;
    std::error_code status;
    return fs::exists(manifest.parent_path() / cell.get<std::string>(), status);
  };
  const auto found = std::find_if(row.cells.begin(), row.cells.end(), is_image);
  if (found == row.cells.end()) return std::nullopt;
  Chosen out;
  out.image = row.columns[static_cast<std::size_t>(found - row.cells.begin())];
  const auto* const known =
      std::find_if(kImages.begin(), kImages.end(), [&](auto name) { return row.has(name); });
  const auto* const label =
      std::find_if(kClasses.begin(), kClasses.end(), [&](auto name) { return row.has(name); });
  if (label != kClasses.end()) out.label = *label;
  const bool usual_label = label == kClasses.end() || label < kClasses.begin() + 2;
  out.usual = known != kImages.end() && *known == out.image && usual_label;
  return out;
}

/// The source's `fields`, after a comma; empty: the defaults are enough.
std::string fields_of(const Chosen& chosen) {
  if (chosen.usual) return "";
  std::string out = fmt::format(", fields: {{image: {{column: {}}}", quoted(chosen.image));
  if (!chosen.label.empty()) out += fmt::format(", label: {{kind: class, column: {}}}", quoted(chosen.label));
  return out + "}";
}

/// A note about the unused columns; empty: all are used.
std::string left_out(const fs::path& manifest, const FirstRow& row, const Chosen& chosen) {
  std::vector<std::string> others = row.columns;
  std::erase_if(others,
                [&](const std::string& name) { return name == chosen.image || name == chosen.label; });
  if (others.empty()) return {};
  return fmt::format(
      "{}: unused columns: {}; the source's `fields` can use them as values, texts, masks, ... "
      "(configs/sources.md, Manifests)",
      manifest.filename().string(), fmt::join(others, ", "));
}

}  // namespace

bool is_manifest_name(const fs::path& path) {
  static constexpr std::array<std::string_view, 5> kEndings{".csv", ".tsv", ".jsonl", ".ndjson", ".txt"};
  return std::find(kEndings.begin(), kEndings.end(), path.extension().string()) != kEndings.end();
}

std::optional<Proposal> manifest_files(const fs::path& path) {
  std::error_code status;
  const bool folder = fs::is_directory(path, status);
  std::vector<ProposedStream> parts;
  std::vector<std::string> notes;
  for (const std::string& name : folder ? names_in(path) : std::vector<std::string>{""}) {
    const fs::path manifest = folder ? path / name : path;
    if (!is_manifest_name(manifest)) continue;
    const FirstRow row = first_row(manifest);
    const auto chosen = choose(manifest, row);
    if (!chosen) continue;
    std::string set = set_in(manifest.stem().string());
    if (set.empty()) set = "train";
    const bool training = set == "train";
    const bool taken =
        std::none_of(parts.begin(), parts.end(), [&](const auto& part) { return part.name == set; });
    if (auto note = left_out(manifest, row, *chosen); taken && !note.empty())
      notes.push_back(std::move(note));
    parts.push_back(
        {set, fmt::format("{{type: manifest, path: {}{}}}", quoted(manifest.string()), fields_of(*chosen)),
         training, crop_images(training)});
  }
  if (parts.empty()) return std::nullopt;
  Proposal out = compose("a list of images", std::move(parts));
  out.notes = std::move(notes);
  return out;
}

}  // namespace headrace::server::source
