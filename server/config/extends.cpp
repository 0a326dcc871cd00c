#include "server/config/extends.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "clientlib/base/nearest.h"
#include "server/config/config.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

constexpr const char* kExtends = "extends";
constexpr std::array<std::string_view, 3> kMergedMaps{"output", "ring", "sharing"};

/// `shuffle` is a short form of `sampler`: a stream that gives one of them takes neither over.
bool replaces(const json& stream, const std::string& key) {
  const bool order = key == "shuffle" || key == "sampler";
  return stream.contains(key) || (order && (stream.contains("shuffle") || stream.contains("sampler")));
}

class Inheritance {
 public:
  explicit Inheritance(Document& document) : document_(document), streams_(document.value.at("streams")) {}

  void apply() {
    if (streams_.size() > kMaxStreams) return;  // reported by validate(); it also bounds the recursion
    std::vector<std::string> names;
    for (const auto& [name, ignored] : streams_.items()) names.push_back(name);
    for (const auto& name : names) complete(name, names);
    for (const auto& name : failed_)
      if (streams_.size() > 1) streams_.erase(name);  // it is reported: no more is said of what it lacks
  }

 private:
  static Pointer place_of(const std::string& name) { return Pointer("/streams") / name; }

  /// False: the stream cannot be completed, which is reported.
  bool complete(const std::string& name, const std::vector<std::string>& names) {
    if (!streams_.at(name).is_object() || !streams_.at(name).contains(kExtends))
      return std::find(failed_.begin(), failed_.end(), name) == failed_.end();
    const json given = streams_.at(name).at(kExtends);
    const Pointer at = place_of(name) / kExtends;
    const auto refuse = [&](std::string message, std::string suggestion = {}) {
      document_.wrong(at, std::move(message), std::move(suggestion));
      streams_.at(name).erase(kExtends);
      failed_.push_back(name);
      return false;
    };
    if (!given.is_string())
      return refuse(fmt::format("{} is not the name of a stream", described::as_json(given)));
    if (!streams_.contains(given.get<std::string>())) {
      std::vector<std::string> others;
      std::copy_if(names.begin(), names.end(), std::back_inserter(others),
                   [&](const std::string& each) { return each != name; });
      return refuse(fmt::format("there is no stream {}; streams: {}", described::as_json(given),
                                others.empty() ? "no other" : fmt::format("{}", fmt::join(others, ", "))),
                    headrace::nearest(given.get<std::string>(), others));
    }
    const auto parent = given.get<std::string>();
    path_.push_back(name);
    const bool cycle = std::find(path_.begin(), path_.end(), parent) != path_.end();
    const std::string round = cycle ? fmt::format("{} -> {}", fmt::join(path_, " -> "), parent) : "";
    const bool sound = !cycle && complete(parent, names);
    path_.pop_back();
    if (cycle) return refuse(fmt::format("`extends` forms a cycle: {}; remove one of these keys", round));
    streams_.at(name).erase(kExtends);
    if (!sound) {
      failed_.push_back(name);
      return false;
    }
    if (streams_.at(parent).is_object()) inherit(name, parent);
    return true;
  }

  void inherit(const std::string& name, const std::string& parent) {
    json& stream = streams_.at(name);
    const json own = stream;
    for (const auto& [key, value] : streams_.at(parent).items()) {
      const Pointer to = place_of(name) / key, from = place_of(parent) / key;
      if (!replaces(own, key)) {
        take(stream, key, value, from, to);
      } else if (std::find(kMergedMaps.begin(), kMergedMaps.end(), key) != kMergedMaps.end() &&
                 value.is_object() && stream.at(key).is_object()) {
        for (const auto& [below, inherited] : value.items())
          if (!stream.at(key).contains(below))
            take(stream.at(key), below, inherited, from / below, to / below);
      }
    }
    // An empty key has kept the other stream's value out; now it means the default.
    for (const std::string_view key : kMergedMaps)
      if (const auto map = stream.find(key); map != stream.end()) erase_nulls(*map);
    erase_nulls(stream);
  }

  static void erase_nulls(json& map) {
    for (auto each = map.is_object() ? map.begin() : map.end(); each != map.end();)
      each = each->is_null() ? map.erase(each) : std::next(each);
  }

  void take(json& into, const std::string& key, const json& value, const Pointer& from, const Pointer& to) {
    into[key] = value;
    document_.put_inherited(from, to);
  }

  Document& document_;
  json& streams_;
  std::vector<std::string> path_, failed_;
};

}  // namespace

void apply_extends(Document& document) {
  const auto streams = document.value.find("streams");
  if (streams != document.value.end() && streams->is_object()) Inheritance(document).apply();
}

}  // namespace headrace::server::config
