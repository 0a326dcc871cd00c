#include "server/described/units.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

namespace headrace::server::described {
namespace {

struct Measure {
  double count;
  std::string_view unit;
};

std::optional<Measure> split(std::string_view text) {
  const auto unit_at = text.find_first_not_of("0123456789.");
  if (unit_at == 0 || unit_at == std::string_view::npos) return std::nullopt;
  const std::string number(text.substr(0, unit_at));
  char* end = nullptr;
  const double count = std::strtod(number.c_str(), &end);
  if (end != number.c_str() + number.size()) return std::nullopt;
  return Measure{count, text.substr(unit_at)};
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto measure = split(text);
  if (!measure) return std::nullopt;
  double scale = 0;
  if (measure->unit == "ms") scale = 1;
  if (measure->unit == "s") scale = 1e3;
  if (measure->unit == "m") scale = 60e3;
  if (measure->unit == "h") scale = 3600e3;
  const double milliseconds = measure->count * scale;
  if (scale == 0 || milliseconds > static_cast<double>(kLongestDuration.count())) return std::nullopt;
  return std::chrono::milliseconds(std::llround(milliseconds));
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  auto measure = split(text);
  if (!measure) return std::nullopt;
  std::string_view unit = measure->unit;
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (!unit.ends_with('B')) return std::nullopt;
  unit.remove_suffix(1);
  const double base = unit.ends_with('i') ? 1024 : 1000;
  if (unit.ends_with('i')) unit.remove_suffix(1);
  constexpr std::string_view kPrefixes = "kKMGT";
  int power = 0;
  if (unit.empty() ? base > 1000 : unit.size() > 1 || kPrefixes.find(unit) == std::string_view::npos)
    return std::nullopt;
  if (!unit.empty()) power = std::max(1, static_cast<int>(kPrefixes.find(unit)));
  const double bytes = measure->count * std::pow(base, power);
  // Doubles are exact up to here, which is far above any machine's memory.
  if (bytes > 0x1p53) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

bool is_url(const std::string& text) {
  const auto scheme = text.find("://");
  return scheme != std::string::npos && scheme > 0 && text.find('/') > scheme;
}

std::filesystem::path absolute(const std::filesystem::path& folder, const std::string& path) {
  if (is_url(path)) return path;
  return (folder / path).lexically_normal();
}

}  // namespace headrace::server::described
