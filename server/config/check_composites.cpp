// Checks across sources that are made of each other.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "clientlib/base/nearest.h"
#include "server/config/read.h"
#include "server/source/combine/repeat.h"
#include "server/source/combine/zip.h"

namespace headrace::server::config {
namespace {

using Names = std::vector<std::string>;

constexpr int kDeepest = 16;  // most levels of nested sources

/// How a source occurs in another one: through which parts.
struct Use {
  std::string source;
  std::map<std::string, std::string> parts;  ///< source with a split -> its part

  /// Whether two uses share no sample, because they go through different parts of one split.
  [[nodiscard]] bool disjoint(const Use& other) const {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& own) {
      const auto theirs = other.parts.find(own.first);
      return theirs != other.parts.end() && theirs->second != own.second;
    });
  }
};

/// The sources below one, if no sample can occur twice.
struct Below {
  std::vector<Use> uses;
  std::string twice;  ///< why a sample can occur twice; then `uses` is incomplete
};

class Checker {
 public:
  Checker(Document& document, const std::map<std::string, SourceConfig>& sources)
      : document_(document), sources_(sources) {
    const auto all = document.value.find("sources");
    for (const auto& [name, ignored] : all->items()) names_.push_back(name);
  }

  void all() {
    const auto faults = [this] { return document_.faults.all().size(); };
    const auto before = faults();
    for (const auto& [name, config] : sources_) references(name, config);
    for (const auto& [name, ignored] : sources_) depth(name);
    if (faults() != before || sources_.size() != names_.size()) return;
    for (const auto& [name, config] : sources_) {
      if (const int deep = depth(name); deep > kDeepest)
        document_.wrong_key(Pointer("/sources") / name,
                            fmt::format("sources are nested {} deep, expected at most {}", deep, kDeepest));
    }
    if (faults() != before) return;
    for (const auto& [name, config] : sources_) {
      if (!config.split || config.made_of().empty()) continue;
      if (const auto& twice = below(name).twice; !twice.empty())
        document_.wrong_key(Pointer("/sources") / name / "split",
                            fmt::format("two parts could have the same sample: {}; split that instead, and "
                                        "make a source of each part",
                                        twice));
    }
  }

 private:
  /// The place of the i-th reference.
  [[nodiscard]] Pointer place(const std::string& name, std::size_t i) const {
    const Pointer of = Pointer("/sources") / name / "of";
    return document_.value.at(of).is_array() ? of / std::to_string(i) : of;
  }

  void references(const std::string& name, const SourceConfig& config) {
    const auto refs = config.made_of();
    std::set<std::string> seen;
    for (std::size_t i = 0; i < refs.size(); ++i) {
      reference(refs[i], place(name, i));
      if (!seen.insert(refs[i].text()).second)
        document_.wrong(
            place(name, i),
            fmt::format("duplicate source \"{}\"; a source of type repeat has samples several times",
                        refs[i].text()));
    }
  }

  void reference(const SourceRef& ref, const Pointer& at) {
    if (std::find(names_.begin(), names_.end(), ref.name) == names_.end()) {
      document_.wrong(
          at, fmt::format("there is no source \"{}\"; sources: {}", ref.name, fmt::join(names_, ", ")),
          nearest(ref.name, names_));
      return;
    }
    const auto found = sources_.find(ref.name);
    if (found == sources_.end()) return;  // it has a problem of its own
    const auto& split = found->second.split;
    if (!split && !ref.part.empty())
      document_.wrong(at, fmt::format("source \"{}\" has no split, so no part \"{}\"", ref.name, ref.part),
                      ref.name);
    if (!split) return;
    const Names own = source::part_names(*split);
    Names parts;
    for (const std::string& part : own) parts.push_back(ref.name + "." + part);
    if (std::find(parts.begin(), parts.end(), ref.text()) != parts.end()) return;
    if (ref.part.empty()) {
      document_.wrong(at, fmt::format("source \"{}\" is split: take {}", ref.name, fmt::join(parts, " or ")));
    } else {
      document_.wrong(at,
                      fmt::format("source \"{}\" has no part \"{}\"; parts: {}", ref.name, ref.part,
                                  fmt::join(own, ", ")),
                      nearest(ref.text(), parts));
    }
  }

  /// The nesting depth of a source. A reference to a source that is being visited closes a cycle.
  int depth(const std::string& name) {
    if (const auto known = depths_.find(name); known != depths_.end()) return known->second;
    if (!sources_.contains(name)) return 0;
    int deepest = 0;
    way_.push_back(name);
    const auto refs = sources_.at(name).made_of();
    for (std::size_t i = 0; i < refs.size(); ++i) {
      const auto first = std::find(way_.begin(), way_.end(), refs[i].name);
      if (first == way_.end()) {
        deepest = std::max(deepest, 1 + depth(refs[i].name));
      } else {
        document_.wrong(place(name, i), fmt::format("a source cannot be made of itself: {} -> {}",
                                                    fmt::join(first, way_.end(), " -> "), refs[i].name));
      }
    }
    way_.pop_back();
    return depths_[name] = deepest;
  }

  // From here on every reference is valid, and there are no cycles.

  const Below& below(const std::string& name) {
    if (const auto known = below_.find(name); known != below_.end()) return known->second;
    const SourceConfig& config = sources_.at(name);
    Below out;
    if (const auto* repeat = config.as<source::RepeatOptions>(); repeat && repeat->times > 1)
      out.twice = fmt::format("\"{}\" repeats \"{}\"", name, repeat->of[0].text());
    const bool zip = config.as<source::ZipOptions>() != nullptr;
    if (config.made_of().empty()) out.uses.push_back({name, {}});
    for (const SourceRef& ref : config.made_of()) {
      const Below& member = below(ref.name);
      if (out.twice.empty()) out.twice = member.twice;
      if (!out.twice.empty()) break;
      std::vector<Use> fresh = member.uses;
      for (Use& use : fresh) {
        if (!ref.part.empty()) use.parts[ref.name] = ref.part;
        const bool shared = std::any_of(out.uses.begin(), out.uses.end(), [&](const Use& other) {
          return other.source == use.source && !other.disjoint(use);
        });
        // Members of a zip share samples, but each sample occurs at one index.
        if (shared && !zip)
          out.twice = fmt::format("\"{}\" occurs more than once in \"{}\"", use.source, name);
      }
      out.uses.insert(out.uses.end(), fresh.begin(), fresh.end());
    }
    return below_[name] = std::move(out);
  }

  Document& document_;
  const std::map<std::string, SourceConfig>& sources_;
  Names names_, way_;
  std::map<std::string, int> depths_;
  std::map<std::string, Below> below_;
};

}  // namespace

void check_composites(Document& document, const std::map<std::string, SourceConfig>& sources) {
  if (!sources.empty()) Checker(document, sources).all();
}

}  // namespace headrace::server::config
