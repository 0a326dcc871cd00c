// A described struct lists its members once, as the keys of a map in the configuration. The reader, the
// canonical form and the JSON Schema (and so the reference and the error messages) are derived from that
// list:
//
//   struct RandomGrayscale {
//     double p = 0.1;
//     static Description<RandomGrayscale> description() {
//       return {"random_grayscale", "PIL's gray, in as many channels as before.",
//               {key("p", &RandomGrayscale::p, fraction(), "Probability.")}};
//     }
//   };
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/described/codec.h"

namespace headrace::server::described {

/// One key of the map that becomes a struct S.
template <class S>
struct Key {
  std::string name;
  Schema schema;
  bool required = false;
  std::function<void(S&, const Json&, const Reading&)> read;
  std::function<void(const S&, Json& map)> write;
};

template <class S>
struct Description {
  std::string name, documentation;
  std::vector<Key<S>> keys;
  /// Checks across keys, each of which is valid by itself. `map`: as it is written.
  std::function<void(const S&, const Json& map, const Reading&)> check = {};
};

namespace detail {

/// A key for a member that is an M or an optional M; without `write`.
template <class S, class Member, class M>
Key<S> read_key(const char* name, Member S::*member, const Codec<M>& codec, const char* documentation) {
  Key<S> out{.name = name, .schema = codec.schema};
  if (*documentation != '\0') out.schema["description"] = documentation;
  out.read = [member, read = codec.read](S& to, const Json& value, const Reading& reading) {
    to.*member = read(value, reading);
  };
  return out;
}

template <class S, class M>
Key<S> plain_key(const char* name, M S::*member, const Codec<M>& codec, const char* documentation) {
  auto out = read_key(name, member, codec, documentation);
  out.write = [member, write = codec.write, key = out.name](const S& from, Json& map) {
    map[key] = write(from.*member);
  };
  return out;
}

}  // namespace detail

/// An optional key: if it is missing, the member keeps the value of S{}, which the schema names as the
/// default.
template <class S, class M>
Key<S> key(const char* name, M S::*member, const Codec<M>& codec, const char* documentation = "") {
  auto out = detail::plain_key(name, member, codec, documentation);
  out.schema["default"] = codec.write(S{}.*member);
  return out;
}

template <class S, class M>
Key<S> required(const char* name, M S::*member, const Codec<M>& codec, const char* documentation = "") {
  auto out = detail::plain_key(name, member, codec, documentation);
  out.required = true;
  return out;
}

/// An optional key without a default: if it is missing, the member is empty, and is not written.
template <class S, class M>
Key<S> optional(const char* name, std::optional<M> S::*member, const Codec<M>& codec,
                const char* documentation = "") {
  auto out = detail::read_key(name, member, codec, documentation);
  out.write = [member, write = codec.write, key = out.name](const S& from, Json& map) {
    if (from.*member) map[key] = write(*(from.*member));
  };
  return out;
}

/// A key that is written as null if it was missing.
template <class S, class M>
Key<S> nullable(const char* name, std::optional<M> S::*member, const Codec<M>& codec,
                const char* documentation = "") {
  auto out = optional(name, member, codec, documentation);
  out.write = [member, write = codec.write, key = out.name](const S& from, Json& map) {
    map[key] = from.*member ? write(*(from.*member)) : Json();
  };
  return out;
}

/// For a key whose default depends on other keys: its documentation explains the default.
template <class S>
Key<S> without_default(Key<S> key) {
  key.schema.erase("default");
  return key;
}

/// A key of S that is a key of one of its members.
template <class S, class M>
Key<S> within(M S::*member, Key<M> key) {
  return {key.name, key.schema, key.required,
          [member, read = key.read](S& to, const Json& value, const Reading& reading) {
            read(to.*member, value, reading);
          },
          [member, write = key.write](const S& from, Json& map) { write(from.*member, map); }};
}

/// S::description(), made once.
template <class S>
const Description<S>& description_of() {
  static const Description<S> made = S::description();
  return made;
}

template <class S>
void read_into(S& out, const Json& map, const Reading& reading,
               const Description<S>& description = description_of<S>()) {
  for (const Key<S>& key : description.keys)
    if (const auto found = map.find(key.name); found != map.end())
      key.read(out, *found, reading.below(key.name));
  if (description.check && reading.sound()) description.check(out, map, reading);
}

template <class S>
Json write(const S& from, const Description<S>& description = description_of<S>()) {
  Json out = Json::object();
  for (const Key<S>& key : description.keys) key.write(from, out);
  return out;
}

template <class S>
Schema schema_of(const Description<S>& description = description_of<S>()) {
  Schema out{{"type", "object"}};
  if (!description.documentation.empty()) out["description"] = description.documentation;
  Schema required = Schema::array(), properties = Schema::object();
  for (const Key<S>& key : description.keys) {
    if (key.required) required.push_back(key.name);
    properties[key.name] = key.schema;
  }
  if (!required.empty()) out["required"] = std::move(required);
  out["additionalProperties"] = false;
  out["properties"] = std::move(properties);
  return out;
}

/// A map that becomes an S.
template <class S>
Codec<S> object(const Description<S>& description = description_of<S>()) {
  return {schema_of<S>(description),
          [description](const Json& map, const Reading& reading) {
            S out;
            read_into(out, map, reading, description);
            return out;
          },
          [description](const S& from) { return write(from, description); }};
}

/// The same, or no value: "key:" in YAML.
template <class S>
Codec<S> object_or_null(const Description<S>& description = description_of<S>()) {
  auto out = object(description);
  out.schema["type"] = {"object", "null"};
  out.read = [read = out.read](const Json& map, const Reading& reading) {
    return map.is_null() ? S{} : read(map, reading);
  };
  return out;
}

}  // namespace headrace::server::described
