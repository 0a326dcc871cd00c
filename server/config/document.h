// A YAML text as JSON, with the place of every key and value.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/config.h"

namespace headrace::server::config {

using Pointer = nlohmann::json::json_pointer;

/// Line and column count from 1; 0: `file` names a variable or flag.
struct Place {
  std::string file;
  int line = 0, column = 0;
};

struct Places {
  Place key;  ///< of a list's item: the value's
  Place value;
};

class Document {
 public:
  explicit Document(std::string name);

  /// Value or key at `pointer`, or of the nearest node above that has a place.
  [[nodiscard]] Place value_place(const Pointer& pointer) const;
  [[nodiscard]] Place key_place(const Pointer& pointer) const;
  void put(const Pointer& pointer, Places places);
  /// The node now comes from outside of the file: so does all below it.
  void put_override(const Pointer& pointer, const std::string& origin);

  /// A problem at the value, or at the key, of `pointer`.
  [[nodiscard]] Problem at_value(const Pointer& pointer, std::string message,
                                 std::string suggestion = {}) const;
  [[nodiscard]] Problem at_key(const Pointer& pointer, std::string message,
                               std::string suggestion = {}) const;

  nlohmann::json value;

 private:
  [[nodiscard]] const Places& nearest(Pointer pointer) const;

  std::string name_;
  std::map<std::string, Places> places_;  // by the pointer's text
};

/// "train.yaml:12:17", or the variable or flag.
std::string to_string(const Place& place);

/// "streams.train.transforms[0].size"
std::string dotted(const Pointer& pointer);

/// Reads one YAML document; scalars as YAML 1.2's core schema has them (so `off` and `yes` are text). Syntax
/// errors and repeated keys go to `problems`. False if there is nothing to go on with.
bool read_yaml(std::string_view text, const std::string& name, Document& out, std::vector<Problem>& problems);

/// A value from a variable or flag: flow lists, flow maps and quoted text as YAML; all else one plain scalar.
Result<nlohmann::json> read_override(const std::string& text);

}  // namespace headrace::server::config
