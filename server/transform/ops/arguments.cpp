#include "server/transform/ops/arguments.h"

#include <fmt/format.h>

namespace headrace::server::transform {

using namespace described;

namespace {

/// [first, second]: two values that are read alike.
template <class T, class Pair>
Codec<Pair> pair_of(const Codec<T>& item, const char* what, T Pair::*first, T Pair::*second) {
  const auto both = list(item, 2, 2);
  return expecting(what, Codec<Pair>{both.schema,
                                     [both, first, second](const Json& value, const Reading& reading) {
                                       const auto read = both.read(value, reading);
                                       Pair out;
                                       out.*first = read[0];
                                       out.*second = read[1];
                                       return out;
                                     },
                                     [first, second](const Pair& value) {
                                       return Json::array({value.*first, value.*second});
                                     }});
}

bool is_list(const Json& value) {
  return value.is_array();
}

bool is_number(const Json& value) {
  return value.is_number();
}

}  // namespace

Codec<std::int32_t> side() {
  return named("side", integer<std::int32_t>(1, kLargestSide));
}

Codec<Size> size() {
  const auto both = pair_of(side(), "[height, width]", &Size::height, &Size::width);
  const auto one = converted<Size, std::int32_t>(
      side(),
      [](std::int32_t length) {
        return Size{length, length};
      },
      [](const Size& size) { return size.height; });
  auto out = any_of<Size>({{one, is_number}, {both, is_list}});
  out.write = both.write;
  return named("size", out);
}

Codec<Interpolation> interpolation() {
  return named("interpolation", word<Interpolation>({{"bilinear", Interpolation::kBilinear},
                                                     {"bicubic", Interpolation::kBicubic},
                                                     {"nearest", Interpolation::kNearest}}));
}

Codec<Interpolation> warp_interpolation() {
  return word<Interpolation>({{"nearest", Interpolation::kNearest}, {"bilinear", Interpolation::kBilinear}});
}

Codec<std::array<std::uint8_t, 3>> fill() {
  using Color = std::array<std::uint8_t, 3>;
  const auto byte = integer<std::uint8_t>(0, 255);
  const auto each = expecting("[red, green, blue]", list(byte, 3, 3));
  const auto all = converted<Color, std::vector<std::uint8_t>>(
      each,
      [](const std::vector<std::uint8_t>& list) {
        return Color{list[0], list[1], list[2]};
      },
      [](const Color& color) { return std::vector<std::uint8_t>(color.begin(), color.end()); });
  const auto one = converted<Color, std::uint8_t>(
      byte,
      [](std::uint8_t value) {
        return Color{value, value, value};
      },
      [](const Color& color) { return color[0]; });
  auto out = any_of<Color>({{one, is_number}, {all, is_list}});
  out.write = all.write;
  return named("fill", out);
}

Codec<Bounds> range() {
  return named("range", pair_of(number_above(0), "[smallest, largest]", &Bounds::low, &Bounds::high));
}

Codec<Bounds> range(std::optional<double> least, std::optional<double> most, const char* what) {
  return pair_of(number(least, most), what, &Bounds::low, &Bounds::high);
}

std::string check_range(const char* name, const char* key, const Bounds& bounds, double low, double high,
                        const char* where, bool open) {
  if ((open ? bounds.low > low : bounds.low >= low) && bounds.low <= bounds.high && bounds.high <= high)
    return {};
  return fmt::format("{}: {} [{}, {}] must rise within {}", name, key, bounds.low, bounds.high, where);
}

}  // namespace headrace::server::transform
