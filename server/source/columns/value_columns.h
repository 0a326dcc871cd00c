// Columns of numbers and text in memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "server/source/columns/table.h"

namespace headrace::server::source {

/// Appends a number, or a list of numbers nested to any depth, as values of `dtype` (no half types). Returns
/// what is wrong with it; empty: nothing. Text that contains JSON is parsed, because cells of CSV are text.
std::string append_numbers(const nlohmann::json& value, DType dtype, std::vector<std::uint8_t>& out);

/// The same number of values in every row: a number, a vector, several hot classes.
class FixedColumn final : public Column {
 public:
  /// `field`: kValues, with a row's shape.
  explicit FixedColumn(SourceField field);

  /// Adds a row if the returned text is empty; otherwise the text says what is wrong.
  std::string add(const nlohmann::json& value);
  /// Adds a row with 1 at the indices in `hot` and 0 elsewhere, to a column of one dimension.
  void add_hot(const std::vector<std::size_t>& hot);

  [[nodiscard]] SourceField field() const override { return field_; }
  [[nodiscard]] std::uint64_t size() const override { return values_.size() / row_bytes_; }
  Result<void> read(std::uint64_t row, Item& out) const override;
  void add_to(Fingerprint& fingerprint) const override { fingerprint.add(std::span(values_)); }

 private:
  const SourceField field_;
  const std::size_t row_bytes_;
  std::vector<std::uint8_t> values_;
};

/// Rows that differ in length: boxes, tokens, text.
class RaggedColumn final : public Column {
 public:
  /// `field`: kRagged.
  explicit RaggedColumn(SourceField field);

  /// Adds a row if the returned text is empty; otherwise the text says what is wrong.
  std::string add(const nlohmann::json& value);
  void add_text(std::string_view text);

  [[nodiscard]] SourceField field() const override { return field_; }
  [[nodiscard]] std::uint64_t size() const override { return ends_.size(); }
  Result<void> read(std::uint64_t row, Item& out) const override;
  [[nodiscard]] std::uint64_t most_values(std::uint64_t rows) const override { return rows * longest_; }
  void add_to(Fingerprint& fingerprint) const override;

 private:
  void end_row();

  const SourceField field_;
  const std::size_t value_bytes_;
  std::vector<std::uint8_t> values_;
  std::vector<std::uint64_t> ends_;  ///< bytes
  std::uint64_t longest_ = 0;        ///< values
};

}  // namespace headrace::server::source
