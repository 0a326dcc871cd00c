#include "server/described/codec.h"

#include <fmt/format.h>

#include "server/described/units.h"

namespace headrace::server::described {
namespace {

/// Without ".0", as messages show it.
Schema bound(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? Schema(whole) : Schema(value);
}

}  // namespace

Codec<double> number(std::optional<double> least, std::optional<double> most) {
  Schema schema{{"type", "number"}};
  if (least) schema["minimum"] = bound(*least);
  if (most) schema["maximum"] = bound(*most);
  return plain<double>(std::move(schema));
}

Codec<double> number_above(double least, std::optional<double> most) {
  Schema schema{{"type", "number"}, {"exclusiveMinimum", bound(least)}};
  if (most) schema["maximum"] = bound(*most);
  return plain<double>(std::move(schema));
}

Codec<std::string> text(const char* pattern, const char* what) {
  return expecting(what, plain<std::string>({{"type", "string"}, {"pattern", pattern}}));
}

Codec<std::string> text() {
  return plain<std::string>({{"type", "string"}, {"minLength", 1}});
}

Codec<std::filesystem::path> path() {
  return named(
      "path",
      expecting("a path", Codec<std::filesystem::path>{
                              {{"type", "string"}, {"minLength", 1}},
                              [](const Json& value, const Folder& folder) {
                                return absolute(folder, value.get<std::string>());
                              },
                              [](const std::filesystem::path& value) { return Json(value.string()); }}));
}

Codec<std::chrono::milliseconds> duration() {
  using std::chrono::milliseconds;
  auto out = converted<milliseconds, std::string>(
      text("^[0-9]{1,9}(\\.[0-9]{1,6})?(ms|s|m|h)$", "a duration such as 500ms, 30s or 2m"),
      [](const std::string& text) { return parse_duration(text).value_or(kLongestDuration); },
      [](const milliseconds& time) {
        return time.count() > 0 && time.count() % 1000 == 0 ? fmt::format("{}s", time.count() / 1000)
                                                            : fmt::format("{}ms", time.count());
      });
  return named("duration", std::move(out));
}

Codec<std::uint64_t> bytes() {
  auto out = converted<std::uint64_t, std::string>(
      text("^[0-9]{1,9}(\\.[0-9]{1,6})? ?([kKMGT]i?)?B$", "a size such as 512MB, 8GiB or 1.5 TB"),
      [](const std::string& text) { return parse_size(text).value_or(0); },
      [](const std::uint64_t& size) {
        constexpr std::uint64_t kMega = 1'000'000;
        return size > 0 && size % kMega == 0 ? fmt::format("{}MB", size / kMega) : fmt::format("{}B", size);
      });
  return named("bytes", std::move(out));
}

Schema name_or_map(Schema names, Schema properties, const char* what, const std::string& expected) {
  Schema name{{"type", "string"}, {"enum", std::move(names)}};
  if (!expected.empty()) name["x-expected"] = expected;
  const Schema map{{"type", "object"},   {"minProperties", 1},
                   {"maxProperties", 1}, {"additionalProperties", false},
                   {"x-expected", what}, {"properties", std::move(properties)}};
  return {{"anyOf", {std::move(name), map}}};
}

}  // namespace headrace::server::described
