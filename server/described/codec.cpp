#include "server/described/codec.h"

#include <fmt/format.h>

#include "server/described/units.h"

namespace headrace::server::described {
namespace {

/// Without ".0", as in messages.
Schema bound(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? Schema(whole) : Schema(value);
}

/// `text` up to the end of the first name with a `~` or `$NAME` that a shell would expand; empty: there is
/// none.
std::string_view up_to_expanded(std::string_view text) {
  std::size_t found = text.starts_with('~') ? 0 : std::string_view::npos;
  for (auto at = text.find('$'); at < found; at = text.find('$', at + 1)) {
    const char next = at + 1 < text.size() ? text[at + 1] : ' ';
    if (next == '{' || next == '_' || (next >= 'A' && next <= 'Z') || (next >= 'a' && next <= 'z'))
      found = at;
  }
  return found == std::string_view::npos ? std::string_view() : text.substr(0, text.find('/', found));
}

/// A path whose written form is passed to `also`.
Codec<std::filesystem::path> path_that(void (*also)(const std::string&, const Reading&)) {
  return named(
      "path",
      expecting("a path", Codec<std::filesystem::path>{
                              {{"type", "string"}, {"minLength", 1}},
                              [also](const Json& value, const Reading& reading) {
                                const auto text = value.get<std::string>();
                                check_path(text, reading);
                                also(text, reading);
                                return absolute(reading.folder(), text);
                              },
                              [](const std::filesystem::path& value) { return Json(value.string()); }}));
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

void check_path(const std::string& path, const Reading& reading) {
  const std::string begin(up_to_expanded(path));
  std::error_code status;
  // The rest may be a pattern, or may not exist yet.
  if (begin.empty() || is_url(path) || std::filesystem::exists(absolute(reading.folder(), begin), status))
    return;
  reading.wrong(
      "", fmt::format("{}: `~` and `$NAME` are not expanded; write the absolute path, or one relative to "
                      "the configuration's folder",
                      as_json(path)));
}

Codec<std::filesystem::path> path() {
  return path_that([](const std::string&, const Reading&) {});
}

Codec<std::filesystem::path> data_path() {
  return path_that([](const std::string& path, const Reading& reading) { reading.add_data(path); });
}

Codec<std::filesystem::path> local_path() {
  return path_that([](const std::string& path, const Reading& reading) {
    if (is_url(path))
      reading.wrong("", "is a URL (it is not shown), and such lists are read from files: fetch it first");
  });
}

Codec<std::chrono::milliseconds> duration() {
  auto out = text("^[0-9]+(\\.[0-9]+)?(ms|s|m|h)$", "a duration such as 500ms, 30s or 2m");
  return named(
      "duration",
      Codec<std::chrono::milliseconds>{
          out.schema,
          [](const Json& value, const Reading& reading) {
            const auto time = parse_duration(value.get<std::string>());
            if (!time)
              reading.wrong("", fmt::format("{} is longer than a year, which is 8760h", value.dump()));
            return time.value_or(kLongestDuration);
          },
          [](const std::chrono::milliseconds& time) {
            return Json(time.count() > 0 && time.count() % 1000 == 0 ? fmt::format("{}s", time.count() / 1000)
                                                                     : fmt::format("{}ms", time.count()));
          }});
}

Codec<std::uint64_t> bytes() {
  auto out = text("^[0-9]+(\\.[0-9]+)? ?([kKMGT]i?)?B$", "a size such as 512MB, 8GiB or 1.5 TB");
  return named("bytes", Codec<std::uint64_t>{
                            out.schema,
                            [](const Json& value, const Reading& reading) {
                              const auto size = parse_size(value.get<std::string>());
                              if (!size)
                                reading.wrong(
                                    "", fmt::format("{} is too large: the limit is 9007 TB", value.dump()));
                              return size.value_or(0);
                            },
                            [](const std::uint64_t& size) {
                              constexpr std::uint64_t kMega = 1'000'000;
                              return Json(size > 0 && size % kMega == 0 ? fmt::format("{}MB", size / kMega)
                                                                        : fmt::format("{}B", size));
                            }});
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
