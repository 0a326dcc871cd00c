#include "server/source/formats/manifest_rows.h"

#include <csv.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/source/files/json_text.h"
#include "server/source/files/text_lines.h"

namespace headrace::server::source {
namespace {

using nlohmann::json;

/// Puts the wanted cells of a row into the reader's order.
class Picker {
 public:
  Picker(const WantColumns& want, const EachRow& each) : want_(want), each_(each) {}

  [[nodiscard]] bool begun() const { return begun_; }
  void begin(const std::vector<std::string>& columns) {
    begun_ = true;
    columns_ = columns.size();
    wanted_ = want_(columns);
    for (const std::string& name : wanted_) {
      const auto found = std::find(columns.begin(), columns.end(), name);
      places_.push_back(static_cast<std::size_t>(found - columns.begin()));
    }
  }
  void row_of_cells(std::uint64_t line, std::span<const std::string> cells) {
    if (cells.size() != columns_)
      return fault(line, fmt::format("has {} cells, the header has {}", cells.size(), columns_));
    picked_.resize(wanted_.size());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i] >= columns_) continue;
      if (!picked_[i].is_string()) picked_[i] = "";
      picked_[i].get_ref<std::string&>() = cells[places_[i]];
    }
    each_(line, picked_, no_fault_);
  }
  void row_of_object(std::uint64_t line, const json& object) {
    picked_.assign(wanted_.size(), nullptr);
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (const auto found = object.find(wanted_[i]); found != object.end()) picked_[i] = *found;
    each_(line, picked_, no_fault_);
  }
  void fault(std::uint64_t line, const std::string& what) { each_(line, {}, what); }

 private:
  const WantColumns& want_;
  const EachRow& each_;
  bool begun_ = false;
  std::size_t columns_ = 0;
  std::vector<std::string> wanted_;
  std::vector<std::size_t> places_;
  std::vector<json> picked_;  ///< reused for every row
  const std::string no_fault_;
};

/// Spreadsheets put it before their UTF-8.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// libcsv's state, and the row being parsed.
class CsvRows {
 public:
  CsvRows(Picker& picker, char delimiter) : picker_(picker) {
    csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI);
    csv_set_delim(&parser_, static_cast<unsigned char>(delimiter));
  }
  ~CsvRows() { csv_free(&parser_); }
  CsvRows(const CsvRows&) = delete;
  CsvRows& operator=(const CsvRows&) = delete;

  /// False: the file is not CSV from here on.
  bool line(std::uint64_t number, const std::string& text) {
    if (!open_ && (text == "\n" || text == "\r\n")) return true;  // no row begins here
    if (!open_) first_line_ = number;
    open_ = true;
    return csv_parse(&parser_, text.data(), text.size(), &CsvRows::on_cell, &CsvRows::on_row, this) ==
               text.size() ||
           complain();
  }
  bool end() { return csv_fini(&parser_, &CsvRows::on_cell, &CsvRows::on_row, this) == 0 || complain(); }

 private:
  bool complain() {
    picker_.fault(first_line_, fmt::format("is not CSV: {}", csv_strerror(csv_error(&parser_))));
    return false;
  }
  static void on_cell(void* text, std::size_t size, void* self) {
    auto& rows = *static_cast<CsvRows*>(self);
    if (rows.count_ == rows.cells_.size()) rows.cells_.emplace_back();
    rows.cells_[rows.count_++].assign(static_cast<const char*>(text), size);
  }
  static void on_row(int, void* self) { static_cast<CsvRows*>(self)->finish(); }
  void finish() {
    if (!picker_.begun()) {
      cells_.resize(count_);
      picker_.begin(cells_);
    } else {
      picker_.row_of_cells(first_line_, std::span(cells_).first(count_));
    }
    count_ = 0;
    open_ = false;
  }

  Picker& picker_;
  csv_parser parser_{};
  std::vector<std::string> cells_;  ///< reused for every row
  std::size_t count_ = 0;           ///< in the row being parsed
  std::uint64_t first_line_ = 1;
  bool open_ = false;
};

std::string each_csv_row(std::istream& stream, char delimiter, Picker& picker) {
  CsvRows rows(picker, delimiter);
  std::string text;
  bool sound = true;
  for (std::uint64_t line = 1; sound && next_line(stream, text); ++line) {
    if (line == 1 && text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    sound = rows.line(line, text += '\n');
  }
  if (sound) rows.end();
  return why_unreadable(stream);
}

std::string each_json_line(std::istream& stream, Picker& picker) {
  return each_line(stream, [&](std::uint64_t line, std::string_view text) {
    const json object = parse_json(text);
    if (!object.is_object()) return picker.fault(line, "is not a JSON object");
    if (!picker.begun()) {
      std::vector<std::string> names;
      for (const auto& [name, ignored] : object.items()) names.push_back(name);
      picker.begin(names);
    }
    picker.row_of_object(line, object);
  });
}

std::string each_path(std::istream& stream, Picker& picker) {
  using Parts = std::pair<std::string_view, std::string_view>;
  const auto split = [](std::string_view text) -> std::optional<Parts> {
    const auto blank = text.find_last_of(" \t");
    if (blank == std::string_view::npos || blank + 1 == text.size()) return std::nullopt;
    const std::string_view label = text.substr(blank + 1);
    if (label.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
    return Parts{text.substr(0, blank), label};
  };
  std::vector<std::string> cells;  // as many as there are columns
  return each_line(stream, [&](std::uint64_t line, std::string_view text) {
    if (!picker.begun()) {
      cells.resize(split(text) ? 2 : 1);
      picker.begin(cells.size() == 2 ? std::vector<std::string>{"path", "label"}
                                     : std::vector<std::string>{"path"});
    }
    if (cells.size() == 1) {
      cells[0] = text;
    } else if (const auto parts = split(text)) {
      cells[0] = parts->first;
      cells[1] = parts->second;
    } else {
      return picker.fault(line, "has no label behind its path, as the first line has");
    }
    picker.row_of_cells(line, cells);
  });
}

}  // namespace

std::string each_row(const std::filesystem::path& file, const WantColumns& want, const EachRow& each) {
  std::ifstream stream;
  if (auto why = open_text(file, stream); !why.empty()) return why;
  return each_row(stream, file, want, each);
}

std::string each_row(std::istream& stream, const std::filesystem::path& name, const WantColumns& want,
                     const EachRow& each) {
  Picker picker(want, each);
  const std::string kind = name.extension().string();
  if (kind == ".csv") return each_csv_row(stream, ',', picker);
  if (kind == ".tsv") return each_csv_row(stream, '\t', picker);
  if (kind == ".jsonl" || kind == ".ndjson") return each_json_line(stream, picker);
  if (kind == ".txt") return each_path(stream, picker);
  return fmt::format("\"{}\" is none of .csv, .tsv, .jsonl, .ndjson and .txt", kind);
}

}  // namespace headrace::server::source
