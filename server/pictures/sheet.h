// A sheet of pictures with captions.
#pragma once

#include <string>
#include <vector>

#include "server/pictures/picture.h"

namespace headrace::server::pictures {

struct Cell {
  Picture picture;                   ///< without pixels: the cell stays empty
  std::vector<std::string> caption;  ///< lines; long ones are wrapped
};

/// kInvalidArgument if a sheet of this many cells is too large even without captions.
Result<void> fits(std::size_t rows, std::size_t columns, std::int32_t side);

/// Rows of cells, each picture above its caption. REQUIRES: RGB pictures of at most side x side pixels, as
/// fit() makes them. kInvalidArgument: the sheet would be too large. Rows are as high as their longest
/// caption needs. Captions show ASCII; other characters become question marks.
Result<Picture> sheet(const std::vector<std::vector<Cell>>& rows, std::int32_t side);

}  // namespace headrace::server::pictures
