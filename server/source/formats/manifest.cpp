#include "server/source/formats/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "server/remote/url.h"
#include "server/source/columns/file_column.h"
#include "server/source/columns/value_columns.h"
#include "server/source/files/json_text.h"
#include "server/source/formats/manifest_rows.h"
#include "server/source/problems.h"
#include "server/source/remote/url_column.h"

namespace headrace::server::source {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostClasses = 1'000'000;
constexpr std::uint64_t kLargestFetched = std::uint64_t{4} << 30;

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Numbers and text are equal: "3" in CSV is 3 in JSON.
std::optional<std::string> class_text(const json& value) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty()) return value.get<std::string>();
  if (value.is_number_unsigned()) return value.dump();
  return std::nullopt;
}

/// Receives a field's cells row by row, then gives the column made of them.
class Intake {
 public:
  virtual ~Intake() = default;
  /// Returns what is wrong; empty: nothing.
  virtual std::string add(const json& cell) = 0;
  /// Reports problems that can only be found, or are found faster, once all rows are there.
  virtual void check_rows(const std::function<void(std::uint64_t line, std::string_view problem)>& wrong) {
    static_cast<void>(wrong);
  }
  virtual Result<void> finish(Table& table) = 0;
};

/// For paths: C is FileColumn or UrlColumn.
template <class C>
class FileIntake final : public Intake {
 public:
  /// `line`: the line of the row that is being added.
  FileIntake(std::unique_ptr<C> column, const std::uint64_t& line)
      : column_(std::move(column)), line_(line) {}
  std::string add(const json& cell) override {
    if (!cell.is_string() || cell.get_ref<const std::string&>().empty())
      return fmt::format("{} is not a path", shown_json(cell));
    column_->add(cell.get_ref<const std::string&>());
    lines_.push_back(line_);
    return {};
  }
  void check_rows(const std::function<void(std::uint64_t, std::string_view)>& wrong) override {
    column_->check([&](std::uint64_t row, std::string_view problem) { wrong(lines_[row], problem); });
    lines_ = {};
  }
  Result<void> finish(Table& table) override {
    if (auto finished = column_->finish(); !finished) return finished;
    table.columns.push_back(std::move(column_));
    return {};
  }

 private:
  std::unique_ptr<C> column_;
  const std::uint64_t& line_;
  std::vector<std::uint64_t> lines_;
};

template <class C>
class ColumnIntake : public Intake {
 public:
  explicit ColumnIntake(SourceField field) : column_(std::make_unique<C>(std::move(field))) {}
  std::string add(const json& cell) override { return column_->add(cell); }
  Result<void> finish(Table& table) override {
    table.columns.push_back(std::move(column_));
    return {};
  }

 protected:
  std::unique_ptr<C> column_;
};

class TextIntake final : public ColumnIntake<RaggedColumn> {
 public:
  using ColumnIntake::ColumnIntake;
  std::string add(const json& cell) override {
    if (!cell.is_string()) return fmt::format("{} is not text", shown_json(cell));
    column_->add_text(cell.get_ref<const std::string&>());
    return {};
  }
};

/// Maps class names to indices; collects new names if none were given.
class ClassNames {
 public:
  explicit ClassNames(std::vector<std::string> names) : names_(std::move(names)), given_(!names_.empty()) {
    for (std::size_t i = 0; i < names_.size(); ++i) places_.emplace(names_[i], static_cast<std::uint32_t>(i));
  }
  [[nodiscard]] bool given() const { return given_; }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  std::optional<std::uint32_t> find(const std::string& name) {
    if (const auto found = places_.find(name); found != places_.end()) return found->second;
    if (given_) {
      const auto index = whole_number(name);
      return index && *index < names_.size() ? std::optional(static_cast<std::uint32_t>(*index))
                                             : std::nullopt;
    }
    places_.emplace(name, static_cast<std::uint32_t>(names_.size()));
    names_.push_back(name);
    return static_cast<std::uint32_t>(names_.size() - 1);
  }
  [[nodiscard]] std::string stranger(const std::string& name) const {
    constexpr std::size_t kFew = 10;
    const auto names = names_.size() > kFew ? "" : fmt::format(" ({})", fmt::join(names_, ", "));
    return fmt::format("\"{}\" is none of the {} classes{}, nor the index of one", name, names_.size(),
                       names);
  }

 private:
  std::vector<std::string> names_;
  const bool given_;
  std::unordered_map<std::string, std::uint32_t> places_;
};

class ClassIntake final : public Intake {
 public:
  ClassIntake(std::string field, std::vector<std::string> names)
      : field_(std::move(field)), names_(std::move(names)) {}
  std::string add(const json& cell) override {
    const auto text = class_text(cell);
    if (!text) return fmt::format("{} is not a class: give a name, or a number from 0", shown_json(cell));
    const auto place = names_.find(*text);
    if (!place) return names_.stranger(*text);
    labels_.push_back(*place);
    return {};
  }
  /// Sorts collected names; if all of them are numbers, each is its own index.
  Result<void> finish(Table& table) override {
    table.classes = names_.names();
    if (!names_.given()) {
      std::vector<std::uint32_t> index(table.classes.size());
      std::optional<std::uint64_t> largest = 0;
      for (const std::string& name : table.classes) {
        const auto number = whole_number(name);
        largest = number && largest ? std::optional(std::max(*largest, *number)) : std::nullopt;
      }
      if (largest && *largest >= kMostClasses)
        return fail(
            ErrorCode::kDatasetInvalid,
            fmt::format("field `{}`: class {} is above {}; give `classes`", field_, *largest, kMostClasses));
      std::vector<std::string> sorted = table.classes;
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t i = 0; i < index.size(); ++i)
        index[i] = static_cast<std::uint32_t>(
            largest ? *whole_number(table.classes[i])
                    : static_cast<std::uint64_t>(
                          std::lower_bound(sorted.begin(), sorted.end(), table.classes[i]) - sorted.begin()));
      for (std::uint32_t& label : labels_) label = index[label];
      table.classes = std::move(sorted);
      if (largest) {
        table.classes.clear();
        for (std::uint64_t i = 0; i <= *largest; ++i) table.classes.push_back(std::to_string(i));
      }
    }
    labels_.shrink_to_fit();
    table.labels = std::move(labels_);
    return {};
  }

 private:
  const std::string field_;
  ClassNames names_;
  std::vector<std::uint32_t> labels_;
};

class HotIntake final : public ColumnIntake<FixedColumn> {
 public:
  HotIntake(SourceField field, std::vector<std::string> names)
      : ColumnIntake(std::move(field)), names_(std::move(names)) {}
  std::string add(const json& cell) override {
    hot_.clear();
    json list = cell;
    if (cell.is_string()) {
      list = json::array();
      const std::string& text = cell.get_ref<const std::string&>();
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('|', begin), text.size());
        list.push_back(text.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    if (!list.is_array()) return fmt::format("{} is not a list of classes", shown_json(cell));
    for (const json& element : list) {
      const auto name = class_text(element);
      if (!name) return fmt::format("{} is not a class", shown_json(element));
      const auto place = names_.find(*name);
      if (!place) return names_.stranger(*name);
      hot_.push_back(*place);
    }
    column_->add_hot(hot_);
    return {};
  }

 private:
  ClassNames names_;
  std::vector<std::size_t> hot_;
};

class ManifestOpener {
 public:
  explicit ManifestOpener(const ManifestOptions& options)
      : options_(options),
        fields_(options.fields),
        file_(remote::shown(options.path.string())),
        name_(remote::name_of(options.path.string())),
        root_(options.root.empty() ? folder_of(options.path) : options.root) {}

  Result<std::shared_ptr<const Source>> open() {
    Problems problems;
    std::optional<Error> broken;
    std::istringstream text;
    const bool away = remote::is_url(options_.path.string());
    if (away) {
      std::vector<std::uint8_t> bytes;
      if (auto got = options_.remote->fetch(options_.path.string(), kLargestFetched, bytes); !got)
        return fail(std::move(got.error()));
      text.str({bytes.begin(), bytes.end()});
    }
    const auto rows = [&](const WantColumns& want, const EachRow& each) {
      return away ? each_row(text, name_, want, each) : each_row(options_.path, want, each);
    };
    const auto why = rows(
        [&](const std::vector<std::string>& columns) {
          auto wanted = prepare(columns);
          if (!wanted) broken = wanted.error();
          return wanted.value_or(std::vector<std::string>{});
        },
        [&](std::uint64_t line, std::span<const json> cells, const std::string& fault) {
          if (broken) return;
          if (!fault.empty()) return problems.add(file_, line, fault);
          ++rows_;
          line_ = line;
          for (std::size_t f = 0; f < cells.size(); ++f)
            if (const auto wrong = cells[f].is_null() ? "is missing" : intakes_[f]->add(cells[f]);
                !wrong.empty())
              problems.add(file_, line, fmt::format("column `{}`: {}", columns_[f], wrong));
        });
    const auto refuse = [&](std::string_view what) {
      return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", file_.string(), what));
    };
    if (!why.empty()) return refuse(why);
    if (broken) return fail(*broken);
    for (std::size_t f = 0; f < intakes_.size(); ++f)
      intakes_[f]->check_rows([&](std::uint64_t line, std::string_view problem) {
        problems.add(file_, line, fmt::format("column `{}`: {}", columns_[f], problem));
      });
    if (!problems.none()) return fail(problems.error(ErrorCode::kDatasetInvalid));
    if (rows_ == 0) return refuse("lists no sample");
    Table table{.origin = name_, .columns = {}, .labels = {}, .classes = {}, .warning = {}};
    for (const auto& intake : intakes_)
      if (auto done = intake->finish(table); !done) return fail(done.error());
    if (table.columns.empty()) return refuse("a sample needs a field besides its class");
    return make_table(std::move(table));
  }

 private:
  static std::filesystem::path folder_of(const std::filesystem::path& file) {
    return remote::is_url(file.string()) ? std::filesystem::path(remote::parent(file.string()))
                                         : file.parent_path();
  }

  /// Chooses the fields if none were given, and returns the columns that they are read from.
  Result<std::vector<std::string>> prepare(const std::vector<std::string>& columns) {
    const auto has = [&](const std::string& name) {
      return std::find(columns.begin(), columns.end(), name) != columns.end();
    };
    if (fields_.empty()) {
      for (const char* name : {"filename", "file", "image", "path"})
        if (has(name)) fields_["image"].column = name;
      if (fields_.empty())
        return fail(
            ErrorCode::kDatasetInvalid,
            fmt::format("{}: has no column path, image, file or filename: name the `fields`; columns: {}",
                        file_.string(), fmt::join(columns, ", ")));
      for (const char* name : {"class", "label"})
        if (has(name))
          fields_["label"] = {.kind = ManifestKind::kClass, .column = name, .shape = {}, .classes = {}};
    }
    for (const auto& [name, field] : fields_) {
      const std::string& column = field.column.empty() ? name : field.column;
      if (!has(column))
        return fail(ErrorCode::kDatasetInvalid,
                    fmt::format("{}: has no column `{}` for field `{}`; columns: {}", file_.string(), column,
                                name, fmt::join(columns, ", ")));
      auto intake = make_intake(name, field);
      if (!intake) return fail(intake.error());
      intakes_.push_back(std::move(*intake));
      columns_.push_back(column);
    }
    return columns_;
  }

  Result<std::unique_ptr<Intake>> make_intake(const std::string& name, const ManifestField& field) const {
    using Kind = ManifestKind;
    const SourceField values{
        .name = name, .content = Content::kValues, .dtype = field.dtype, .shape = field.shape};
    SourceField ragged = values;
    ragged.content = Content::kRagged;
    switch (field.kind) {
      case Kind::kImage:
      case Kind::kMask: {
        const bool mask = field.kind == Kind::kMask;
        const SourceField image{
            .name = name, .channels = mask ? 1 : 3, .scale = field.scale, .mask = mask, .shape = {}};
        if (remote::is_url(root_.string()))
          return std::make_unique<FileIntake<UrlColumn>>(
              std::make_unique<UrlColumn>(image, root_.string(), options_.remote), line_);
        auto column = FileColumn::open(image, root_);
        if (!column) return fail(column.error());
        return std::make_unique<FileIntake<FileColumn>>(std::move(*column), line_);
      }
      case Kind::kClass:
        return std::make_unique<ClassIntake>(name, field.classes);
      case Kind::kValue:
        return std::make_unique<ColumnIntake<FixedColumn>>(values);
      case Kind::kRagged:
        return std::make_unique<ColumnIntake<RaggedColumn>>(ragged);
      case Kind::kText:
        ragged.dtype = DType::kUInt8;
        return std::make_unique<TextIntake>(ragged);
      case Kind::kMultiHot: {
        SourceField hot = values;
        hot.shape = {static_cast<std::int64_t>(field.classes.size())};
        return std::make_unique<HotIntake>(hot, field.classes);
      }
    }
    return fail(ErrorCode::kInternal, "a kind of field that is none");
  }

  const ManifestOptions& options_;
  std::map<std::string, ManifestField> fields_;
  const std::filesystem::path file_;  ///< for messages
  const std::string name_;            ///< without its folder
  const std::filesystem::path root_;
  std::vector<std::unique_ptr<Intake>> intakes_;  ///< with columns_, in the order of fields_
  std::vector<std::string> columns_;
  std::uint64_t rows_ = 0;
  std::uint64_t line_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Source>> open_manifest(const ManifestOptions& options) {
  return ManifestOpener(options).open();
}

}  // namespace headrace::server::source
