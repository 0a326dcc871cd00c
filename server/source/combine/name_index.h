// Finds samples by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

/// Stores hashes instead of names: 16 bytes per sample, however long its path. Thread safety: immutable.
class NameIndex {
 public:
  /// `source` must outlive it.
  explicit NameIndex(const Source& source);

  /// Ignores a leading "./".
  [[nodiscard]] std::optional<std::uint64_t> find(std::string_view name) const;

 private:
  const Source& source_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> hashes_;
};

}  // namespace headrace::server::source
