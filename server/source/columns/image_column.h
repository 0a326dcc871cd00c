// Columns of encoded images, row by row from one root: a folder or a database.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/source/columns/table.h"

namespace headrace::server::source {

class ImageColumn : public Column {
 public:
  /// The root's name in messages.
  [[nodiscard]] virtual const std::string& root() const = 0;
  /// Adds a row: an image below the root.
  virtual void add(std::string_view path) = 0;
  /// Ends adding rows. Call it before anything is read.
  virtual Result<void> finish() = 0;
  virtual void set_scale(std::int32_t scale) = 0;
};

}  // namespace headrace::server::source
