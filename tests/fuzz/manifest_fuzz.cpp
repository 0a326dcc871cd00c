// Manifests: CSV, TSV, JSON lines and lists of paths, as rows and as datasets with every kind of field.
// Input: the format (% 4) and the fields (/ 4), then the text.
#include "server/source/formats/manifest.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "server/source/formats/manifest_rows.h"
#include "tests/fuzz/sources.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

void read_rows(const std::string& text, const std::string& name) {
  std::istringstream stream(text);
  std::size_t wanted = 0;
  std::uint64_t last = 0;
  bool begun = false;
  const auto want = [&](const std::vector<std::string>& columns) {
    require(!begun, "columns are asked for once");
    begun = true;
    auto names = columns;
    names.emplace_back("a column that is not there");
    wanted = names.size();
    return names;
  };
  const auto each = [&](std::uint64_t line, std::span<const nlohmann::json> cells, const std::string& fault) {
    require(line >= last, "rows come in the order of their lines");
    last = line;
    if (!fault.empty()) return require(cells.empty(), "a faulty row has no cells");
    require(begun && cells.size() == wanted, "a row has the cells that are wanted");
    require(cells.back().is_null(), "a missing cell is null");
  };
  (void)each_row(stream, name, want, each);
  const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  require(last <= lines, "a row's line is in the text");
}

/// Sets of fields: the default, then each kind.
std::map<std::string, ManifestField> fields_of(int set) {
  const ManifestField image{.column = "file"}, label{.kind = ManifestKind::kClass};
  switch (set % 4) {
    case 0:
      return {};
    case 1:
      return {{"image", image}, {"label", label}, {"mask", {.kind = ManifestKind::kMask}}};
    case 2:
      return {{"image", image},
              {"age", {.kind = ManifestKind::kValue, .dtype = DType::kInt32}},
              {"point", {.kind = ManifestKind::kValue, .shape = {2}}}};
    default:
      return {{"image", image},
              {"boxes", {.kind = ManifestKind::kRagged, .shape = {4}}},
              {"caption", {.kind = ManifestKind::kText}},
              {"tags", {.kind = ManifestKind::kMultiHot, .classes = {"big", "wet"}}}};
  }
}

}  // namespace
}  // namespace headrace::server::source

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::server::source;
  static const TempFolder folder;
  static const bool kWritten = [] {
    folder.put("a.jpg", "not a picture");
    folder.put("b.png", "nor this");
    return true;
  }();
  require(kWritten, "files are written");
  fuzz::Input input(data, size);
  const int kind = input.take<std::uint8_t>();
  static constexpr const char* kNames[] = {"x.csv", "x.tsv", "x.jsonl", "x.txt"};
  const std::string text(fuzz::text_of(input.rest()));
  read_rows(text, kNames[kind % 4]);
  ManifestOptions options;
  options.path = folder.put(kNames[kind % 4], text);
  options.fields = fields_of(kind / 4);
  fuzz::read_source(fuzz::open_as(options));
  return 0;
}
