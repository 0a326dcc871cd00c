// A YAML text as JSON, with the place of every key and value in the text.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/config.h"
#include "server/described/reading.h"

namespace headrace::server::config {

using described::Pointer;

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

  /// The place of the value or key at `pointer`, or of the nearest node above that has one.
  [[nodiscard]] Place value_place(const Pointer& pointer) const;
  [[nodiscard]] Place key_place(const Pointer& pointer) const;
  void put(const Pointer& pointer, Places places);
  /// Records that the node, with everything below it, now comes from outside the file.
  void put_override(const Pointer& pointer, const std::string& origin);
  /// Records that the node `to`, with everything below it, comes from where the node `from` is.
  void put_inherited(const Pointer& from, const Pointer& to);

  /// Reports that the value, or the key, at `pointer` is wrong.
  void wrong(const Pointer& pointer, std::string message, std::string suggestion = {});
  void wrong_key(const Pointer& pointer, std::string message, std::string suggestion = {});
  /// The same for a problem without a place of its own in `value`.
  void wrong_at(const Place& place, const Pointer& pointer, std::string message, std::string suggestion = {});
  /// All problems, in the order of the file; those from outside the file come last.
  [[nodiscard]] std::vector<Problem> problems() const;

  nlohmann::json value;
  described::Faults faults;

 private:
  [[nodiscard]] const Places& nearest(Pointer pointer) const;

  std::string name_;
  /// The variables and flags that set something of the same source or stream, or of the server.
  [[nodiscard]] std::string overrides_near(const Pointer& pointer) const;

  std::map<std::string, Places> places_;  // by the pointer's text
  std::vector<std::pair<Pointer, std::string>> overrides_;
  std::vector<Problem> elsewhere_;
};

/// "train.yaml:12:17", or the variable or flag.
std::string to_string(const Place& place);

/// "streams.train.transforms[0].size"
std::string dotted(const Pointer& pointer);

/// Reads one YAML document, with scalars by YAML 1.2's core schema (so `off` and `yes` are text). Also
/// reports syntax errors and repeated keys to `out`. False if the document cannot be used.
bool read_yaml(std::string_view text, const std::string& name, Document& out);

/// A value from a variable or flag: flow lists, flow maps and quoted text as in YAML; anything else is one
/// plain scalar.
Result<nlohmann::json> read_override(const std::string& text);

}  // namespace headrace::server::config
