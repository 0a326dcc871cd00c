// A source made of columns: each column reads one field of every sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/source/fingerprint.h"
#include "server/source/source.h"

namespace headrace::server::source {

/// Thread safety: the same as Source's.
class Column {
 public:
  virtual ~Column() = default;
  [[nodiscard]] virtual SourceField field() const = 0;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  virtual Result<void> read(std::uint64_t row, Item& out) const = 0;
  /// See Source::most_values.
  [[nodiscard]] virtual std::uint64_t most_values(std::uint64_t rows) const { return rows; }
  /// The sample's name, if this column knows one.
  [[nodiscard]] virtual std::string name(std::uint64_t row) const { return static_cast<void>(row), ""; }
  virtual void add_to(Fingerprint& fingerprint) const = 0;
  /// See Source::fault.
  [[nodiscard]] virtual std::optional<Error> fault() const { return std::nullopt; }
};

struct Table {
  std::string origin;  ///< messages name a sample without a name "<origin>#<row>"
  /// At least one, all of the same size, which is above 0.
  std::vector<std::unique_ptr<const Column>> columns;
  std::vector<std::uint32_t> labels;  ///< empty: no classes
  std::vector<std::string> classes;
  std::string warning;
};

std::shared_ptr<const Source> make_table(Table table);

}  // namespace headrace::server::source
