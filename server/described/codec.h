// How one kind of value is written in a configuration: its JSON Schema, its reader, and its writer for the
// canonical form.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/described/reading.h"

namespace headrace::server::described {

using Schema = nlohmann::ordered_json;  ///< keys stay in the order of their declaration

template <class T>
struct Codec {
  Schema schema;
  std::function<T(const Json&, const Reading&)> read;  ///< the value conforms to the schema
  std::function<Json(const T&)> write;                 ///< the canonical form
};

/// A codec whose schema is stored in the document's `definitions` under this name.
template <class T>
Codec<T> named(const char* name, Codec<T> codec) {
  codec.schema["x-name"] = name;
  return codec;
}

/// Messages say that `what` was expected, instead of the schema's wording. The result is no longer the named
/// definition, so it loses the name.
template <class T>
Codec<T> expecting(const char* what, Codec<T> codec) {
  codec.schema.erase("x-name");
  codec.schema["x-expected"] = what;
  return codec;
}

/// Values of JSON's own types.
template <class T>
Codec<T> plain(Schema schema) {
  return {std::move(schema), [](const Json& value, const Reading&) { return value.get<T>(); },
          [](const T& value) { return Json(value); }};
}

inline Codec<bool> boolean() {
  return plain<bool>({{"type", "boolean"}});
}

template <class T>
Codec<T> integer(std::int64_t least, std::int64_t most) {
  return plain<T>({{"type", "integer"}, {"minimum", least}, {"maximum", most}});
}

/// Numbers from `least` to `most`; an empty bound means none.
Codec<double> number(std::optional<double> least = {}, std::optional<double> most = {});
/// Numbers above `least`.
Codec<double> number_above(double least, std::optional<double> most = {});

/// Text that matches the regular expression `pattern`; `what` is its description in messages.
Codec<std::string> text(const char* pattern, const char* what);
/// Non-empty text.
Codec<std::string> text();

/// Relative paths are made absolute; URLs stay as they are. Refuses `~` and `$NAME`, which are not expanded,
/// unless there is a file of that name: otherwise files would be created in a folder called `~`.
Codec<std::filesystem::path> path();
/// The path or URL of a source's data, which is reported to the Reading's owner.
Codec<std::filesystem::path> data_path();
/// A file on this machine: URLs are refused.
Codec<std::filesystem::path> local_path();
/// Refuses what path() refuses; for codecs of other paths.
void check_path(const std::string& path, const Reading& reading);
/// "30s", up to a year.
Codec<std::chrono::milliseconds> duration();
/// "1.5 GiB", up to 2^53 bytes.
Codec<std::uint64_t> bytes();

/// Refuses values for which `wrong` returns a text: "VALUE is too long".
template <class T>
Codec<T> checked(Codec<T> codec, std::function<std::string(const T&)> wrong) {
  codec.read = [read = codec.read, wrong](const Json& value, const Reading& reading) {
    T out = read(value, reading);
    if (!reading.sound()) return out;
    if (const std::string why = wrong(out); !why.empty()) reading.wrong("", value.dump() + " " + why);
    return out;
  };
  return codec;
}

/// One word for each value of an enumeration.
template <class Enum>
using Words = std::vector<std::pair<const char*, Enum>>;

/// "?": the value has no word.
template <class Enum>
const char* word_of(const Words<Enum>& words, Enum value) {
  for (const auto& [name, meaning] : words)
    if (value == meaning) return name;
  return "?";
}

template <class Enum>
Codec<Enum> word(Words<Enum> words) {
  Schema names = Schema::array();
  for (const auto& [name, value] : words) names.push_back(name);
  return {{{"type", "string"}, {"enum", std::move(names)}},
          [words](const Json& value, const Reading&) {
            for (const auto& [name, meaning] : words)
              if (value == name) return meaning;
            return words.front().second;
          },
          [words](const Enum& value) { return Json(word_of(words, value)); }};
}

/// A codec for To that reads and writes values as `from` does, and converts them.
template <class To, class From>
Codec<To> converted(Codec<From> from, std::function<To(From)> read, std::function<From(const To&)> write) {
  return {from.schema,
          [from, read](const Json& value, const Reading& reading) { return read(from.read(value, reading)); },
          [from, write](const To& value) { return from.write(write(value)); }};
}

template <class T>
Codec<std::vector<T>> list(Codec<T> item, std::size_t least = 0, std::size_t most = SIZE_MAX) {
  Schema schema{{"type", "array"}, {"items", item.schema}};
  if (least > 0) schema["minItems"] = least;
  if (most < SIZE_MAX) schema["maxItems"] = most;
  return {std::move(schema),
          [item](const Json& value, const Reading& reading) {
            std::vector<T> out;
            for (std::size_t i = 0; i < value.size(); ++i)
              out.push_back(item.read(value[i], reading.below(std::to_string(i))));
            return out;
          },
          [item](const std::vector<T>& value) {
            Json out = Json::array();
            for (const T& one : value) out.push_back(item.write(one));
            return out;
          }};
}

/// The schema of a choice among several things with a name and arguments: only a name, if it is one of
/// `names`, or a map from one name to its arguments. Messages call the map `what`, and the names `expected`,
/// if given.
Schema name_or_map(Schema names, Schema properties, const char* what, const std::string& expected = {});

/// A map from names, which `names` describes, to values. `least`: fewest entries.
template <class T>
Codec<std::map<std::string, T>> map(Codec<T> item, std::size_t least = 0,
                                    std::optional<Codec<std::string>> names = {}) {
  Schema schema{{"type", "object"}};
  if (least > 0) schema["minProperties"] = least;
  if (names) schema["propertyNames"] = names->schema;
  schema["additionalProperties"] = item.schema;
  return {std::move(schema),
          [item](const Json& value, const Reading& reading) {
            std::map<std::string, T> out;
            for (const auto& [name, one] : value.items())
              out.emplace(name, item.read(one, reading.below(name)));
            return out;
          },
          [item](const std::map<std::string, T>& value) {
            Json out = Json::object();
            for (const auto& [name, one] : value) out[name] = item.write(one);
            return out;
          }};
}

/// One of several forms of the same value, which is written in the first form.
template <class T>
Codec<T> any_of(std::vector<std::pair<Codec<T>, std::function<bool(const Json&)>>> forms) {
  Schema schema{{"anyOf", Schema::array()}};
  for (const auto& [codec, fits] : forms) schema["anyOf"].push_back(codec.schema);
  return {std::move(schema),
          [forms](const Json& value, const Reading& reading) {
            for (const auto& [codec, fits] : forms)
              if (fits(value)) return codec.read(value, reading);
            return forms.front().first.read(value, reading);
          },
          forms.front().first.write};
}

}  // namespace headrace::server::described
