#include "clientlib/base/human.h"

#include <algorithm>
#include <cstdio>

namespace headrace {
namespace {

template <class... Args>
std::string printed(const char* format, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1'000) return std::to_string(bytes) + " B";
  if (bytes < 1'000'000) return printed("%.1f KB", value / 1e3);
  if (bytes < 1'000'000'000) return printed("%.1f MB", value / 1e6);
  return bytes < 1'000'000'000'000 ? printed("%.2f GB", value / 1e9) : printed("%.2f TB", value / 1e12);
}

std::string human_time(std::chrono::seconds time) {
  const long long seconds = time.count();
  return seconds < 3600 ? printed("%lld:%02lld", seconds / 60, seconds % 60)
                        : printed("%lld:%02lld:%02lld", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string bar(double part, std::size_t width) {
  const auto filled = std::min(width, static_cast<std::size_t>(part * static_cast<double>(width)));
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

std::string count_of(std::uint64_t count, const std::string& singular) {
  return std::to_string(count) + " " + singular + (count == 1 ? "" : "s");
}

}  // namespace headrace
