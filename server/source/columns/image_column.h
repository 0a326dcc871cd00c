// Columns of encoded images, row by row from one place: a folder, a database.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/source/columns/table.h"

namespace headrace::server::source {

class ImageColumn : public Column {
 public:
  /// What messages call the place.
  [[nodiscard]] virtual const std::string& root() const = 0;
  /// One more row: an image of that place.
  virtual void add(std::string_view path) = 0;
  /// No more rows will come. Before anything is read.
  virtual Result<void> finish() = 0;
  virtual void set_scale(std::int32_t scale) = 0;
};

}  // namespace headrace::server::source
