// Text on pictures, in a small font of one color.
#pragma once

#include <string>
#include <vector>

#include "server/pictures/picture.h"

namespace headrace::server::pictures {

inline constexpr std::int32_t kLineHeight = 12;  ///< pixels

/// Lines no wider than `width` pixels, broken between words where possible. Characters outside ASCII become
/// `?`.
std::vector<std::string> wrap(const std::string& text, std::int32_t width);

/// Writes a line, black, with its upper left corner at (x, y). What is outside the picture is cut. REQUIRES:
/// an RGB picture; a line as wrap() gives it.
void write(Picture& picture, std::int32_t x, std::int32_t y, const std::string& line);

}  // namespace headrace::server::pictures
