#include "server/pictures/sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "server/pictures/lettering.h"

namespace headrace::server::pictures {
namespace {

constexpr std::int32_t kMargin = 8;  ///< pixels around each cell

void place(Picture& on, const Picture& picture, std::int32_t x, std::int32_t y) {
  const std::size_t row = std::size_t{3} * picture.shape.width;
  for (std::int32_t line = 0; line < picture.shape.height; ++line)
    std::memcpy(on.pixels.data() + 3 * (std::size_t(y + line) * on.shape.width + x),
                picture.pixels.data() + line * row, row);
}

std::int32_t width_of(std::size_t columns, std::int32_t side) {
  return kMargin + static_cast<std::int32_t>(columns) * (side + kMargin);
}

Result<void> fits(std::int64_t width, std::int64_t height) {
  constexpr std::int64_t kMostPixels = 100'000'000;
  if (width * height <= kMostPixels) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "the sheet would have {} megapixels, at most {} are possible: ask for fewer or smaller pictures",
          width * height / 1'000'000, kMostPixels / 1'000'000));
}

}  // namespace

Result<void> fits(std::size_t rows, std::size_t columns, std::int32_t side) {
  return fits(width_of(columns, side), kMargin + static_cast<std::int64_t>(rows) * (side + 2 * kMargin));
}

Result<Picture> sheet(const std::vector<std::vector<Cell>>& rows, std::int32_t side) {
  std::vector<std::vector<std::vector<std::string>>> captions;  ///< of cells, wrapped
  std::vector<std::int32_t> heights;                            ///< of rows, with margins
  std::size_t columns = 1;
  std::int32_t height = kMargin;
  for (const std::vector<Cell>& row : rows) {
    std::size_t lines = 0;
    captions.emplace_back();
    for (const Cell& cell : row) {
      auto& caption = captions.back().emplace_back();
      for (const std::string& text : cell.caption)
        for (std::string& line : wrap(text, side)) caption.push_back(std::move(line));
      lines = std::max(lines, caption.size());
    }
    columns = std::max(columns, row.size());
    heights.push_back(side + kLineHeight * static_cast<std::int32_t>(lines) + 2 * kMargin);
    height += heights.back();
  }
  const std::int32_t width = width_of(columns, side);
  if (auto fit = fits(width, height); !fit) return tl::make_unexpected(fit.error());
  Picture out{.shape = {.width = width, .height = height}, .pixels = {}};
  out.pixels.assign(std::size_t{3} * width * height, 255);
  std::int32_t y = kMargin;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::int32_t x = kMargin;
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      const Picture& picture = rows[r][c].picture;
      const std::int32_t spare = side - picture.shape.height;  // pictures stand on their captions
      if (!picture.pixels.empty()) place(out, picture, x, y + spare);
      std::int32_t line_y = y + side + kMargin / 2;
      for (const std::string& line : captions[r][c]) write(out, x, line_y, line), line_y += kLineHeight;
      x += side + kMargin;
    }
    y += heights[r];
  }
  return out;
}

}  // namespace headrace::server::pictures
