#include "server/source/columns/table.h"

#include <fmt/format.h>

#include <utility>

namespace headrace::server::source {
namespace {

class TableSource final : public Source {
 public:
  explicit TableSource(Table table) : table_(std::move(table)) {
    Fingerprint fingerprint;
    for (const auto& column : table_.columns) {
      fields_.push_back(column->field());
      fingerprint.add(fields_.back().name);
      column->add_to(fingerprint);
    }
    for (const std::uint32_t label : table_.labels) fingerprint.add(std::uint64_t{label});
    for (const std::string& name : table_.classes) fingerprint.add(name);
    fingerprint_ = fingerprint.value();
  }

  [[nodiscard]] std::uint64_t size() const override { return table_.columns.front()->size(); }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    return read_fields(index, FieldSet::all(), out);
  }
  Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const override {
    out.item(table_.columns.size() - 1);
    for (std::size_t c = 0; c < table_.columns.size(); ++c) {
      if (!wanted.has(c)) continue;
      if (auto read = table_.columns[c]->read(index, out.items[c]); !read) return read;
    }
    return {};
  }
  [[nodiscard]] bool labelled() const override { return !table_.labels.empty(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override {
    return table_.labels.empty() ? 0 : table_.labels.at(index);
  }
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override {
    return table_.columns.at(field)->most_values(rows);
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    for (const auto& column : table_.columns)
      if (std::string name = column->name(index); !name.empty()) return name;
    return fmt::format("{}#{}", table_.origin, index);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return table_.classes; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::optional<Error> fault() const override {
    for (const auto& column : table_.columns)
      if (auto lost = column->fault()) return lost;
    return std::nullopt;
  }
  [[nodiscard]] std::string warning() const override { return table_.warning; }

 private:
  const Table table_;
  std::vector<SourceField> fields_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

std::shared_ptr<const Source> make_table(Table table) {
  return std::make_shared<TableSource>(std::move(table));
}

}  // namespace headrace::server::source
