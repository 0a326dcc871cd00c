#include "server/transform/augmentations.h"

#include <fmt/format.h>

#include <utility>

namespace headrace::server::transform {
namespace {

std::string outside(const char* name, const std::optional<Bounds>& bounds, double low, double high,
                    const char* range) {
  if (!bounds || (bounds->low >= low && bounds->low <= bounds->high && bounds->high <= high)) return {};
  return fmt::format("color_jitter: {} [{}, {}] must rise within {}", name, bounds->low, bounds->high, range);
}

}  // namespace

std::string wrong_with(const ColorJitter& t) {
  constexpr double kLargest = 1e6;
  for (const auto& [name, bounds] :
       {std::pair{"brightness", &t.brightness}, {"contrast", &t.contrast}, {"saturation", &t.saturation}})
    if (auto wrong = outside(name, *bounds, 0, kLargest, "[0, 1000000]"); !wrong.empty()) return wrong;
  return outside("hue", t.hue, -0.5, 0.5, "[-0.5, 0.5]");
}

}  // namespace headrace::server::transform
