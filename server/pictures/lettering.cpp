#include "server/pictures/lettering.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_easy_font.h>
#pragma GCC diagnostic pop

namespace headrace::server::pictures {
namespace {

/// A corner of a rectangle as stb_easy_font gives it.
struct Corner {
  float x, y, z;
  std::array<unsigned char, 4> color;
};

std::string in_ascii(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;  // of a character in UTF-8
    if (c >= ' ' && c < 127)
      out += c;
    else if (!continues)
      out += '?';
  }
  return out;
}

std::int32_t width_of(std::string text) {
  return stb_easy_font_width(text.data());
}

}  // namespace

std::vector<std::string> wrap(const std::string& text, std::int32_t width) {
  std::vector<std::string> lines;
  std::string line;
  const auto end_line = [&] { lines.push_back(std::exchange(line, {})); };
  std::istringstream words(in_ascii(text));
  for (std::string word; words >> word;) {
    if (!line.empty() && width_of(line + " " + word) > width) end_line();
    line += (line.empty() ? "" : " ") + word;
    while (width_of(line) > width && line.size() > 1) {  // one word that is too long
      std::size_t fits = 1;
      while (width_of(line.substr(0, fits + 1)) <= width) ++fits;
      lines.push_back(line.substr(0, fits));
      line.erase(0, fits);
    }
  }
  if (!line.empty()) end_line();
  return lines;
}

void write(Picture& picture, std::int32_t x, std::int32_t y, const std::string& line) {
  constexpr std::size_t kCornersPerSign = 4 * 20;
  std::string text = line;
  std::vector<Corner> corners(kCornersPerSign * (text.size() + 1));
  const int rectangles =
      stb_easy_font_print(static_cast<float>(x), static_cast<float>(y), text.data(), nullptr, corners.data(),
                          static_cast<int>(corners.size() * sizeof(Corner)));
  for (std::size_t r = 0; r < static_cast<std::size_t>(rectangles); ++r) {
    const Corner &from = corners[4 * r], &to = corners[4 * r + 2];
    const auto pixel = [](float at, std::int32_t end) {
      return std::clamp(static_cast<std::int32_t>(std::lround(at)), 0, end);
    };
    const std::int32_t right = pixel(to.x, picture.shape.width), bottom = pixel(to.y, picture.shape.height);
    for (std::int32_t row = pixel(from.y, picture.shape.height); row < bottom; ++row)
      for (std::int32_t column = pixel(from.x, picture.shape.width); column < right; ++column)
        std::memset(picture.pixels.data() + 3 * (std::size_t(row) * picture.shape.width + column), 0, 3);
  }
}

}  // namespace headrace::server::pictures
