#include "server/config/check_composites.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "clientlib/base/nearest.h"
#include "server/source/combine/refs.h"
#include "server/source/combine/repeat.h"
#include "server/source/combine/zip.h"

namespace headrace::server::config {
namespace {

using Names = std::vector<std::string>;

/// How a source comes in another one: by which parts on the way.
struct Use {
  std::string source;
  std::map<std::string, std::string> parts;  ///< source with a split -> its part

  /// Parts of one split share no sample.
  [[nodiscard]] bool disjoint(const Use& other) const {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& own) {
      const auto theirs = other.parts.find(own.first);
      return theirs != other.parts.end() && theirs->second != own.second;
    });
  }
};

/// The sources below one, as long as no sample can come twice.
struct Below {
  std::vector<Use> uses;
  std::string twice;  ///< why one can; then `uses` is not whole
};

class Checker {
 public:
  Checker(const Document& document, const std::map<std::string, SourceConfig>& sources,
          std::vector<Problem>& problems)
      : document_(document), sources_(sources), problems_(problems) {
    const auto all = document.value.find("sources");
    for (const auto& [name, ignored] : all->items()) names_.push_back(name);
  }

  void all() {
    const auto before = problems_.size();
    for (const auto& [name, config] : sources_) references(name, config);
    for (const auto& [name, ignored] : sources_) cycles(name);
    if (problems_.size() != before || sources_.size() != names_.size()) return;
    for (const auto& [name, config] : sources_) {
      if (const int deep = depth(name); deep > kDeepest)
        problems_.push_back(document_.at_key(
            Pointer("/sources") / name,
            fmt::format("sources are nested {} deep in it; at most {} are possible", deep, kDeepest)));
    }
    if (problems_.size() != before) return;
    for (const auto& [name, config] : sources_) {
      if (!config.split || config.made_of().empty()) continue;
      if (const auto& twice = below(name).twice; !twice.empty())
        problems_.push_back(
            document_.at_key(Pointer("/sources") / name / "split",
                             fmt::format("two parts could have the same sample: {}; split that instead, and "
                                         "make a source of each part",
                                         twice)));
    }
  }

 private:
  /// Where the i-th reference stands.
  [[nodiscard]] Pointer place(const std::string& name, std::size_t i) const {
    const Pointer of = Pointer("/sources") / name / "of";
    return document_.value.at(of).is_array() ? of / std::to_string(i) : of;
  }

  void references(const std::string& name, const SourceConfig& config) {
    const auto refs = config.made_of();
    std::set<std::string> seen;
    for (std::size_t i = 0; i < refs.size(); ++i) {
      if (auto wrong = fault(refs[i], place(name, i))) problems_.push_back(std::move(*wrong));
      if (!seen.insert(refs[i].text()).second)
        problems_.push_back(
            document_.at_value(place(name, i), fmt::format("\"{}\" is there twice; a source of type repeat "
                                                           "has samples several times",
                                                           refs[i].text())));
    }
  }

  [[nodiscard]] std::optional<Problem> fault(const SourceRef& ref, const Pointer& at) const {
    if (std::find(names_.begin(), names_.end(), ref.name) == names_.end())
      return document_.at_value(
          at, fmt::format("there is no source \"{}\"; sources: {}", ref.name, fmt::join(names_, ", ")),
          nearest(ref.name, names_));
    const auto found = sources_.find(ref.name);
    if (found == sources_.end()) return std::nullopt;  // it has a problem of its own
    const auto& split = found->second.split;
    if (!split && ref.part.empty()) return std::nullopt;
    if (!split)
      return document_.at_value(
          at, fmt::format("source \"{}\" has no split, so no part \"{}\"", ref.name, ref.part), ref.name);
    Names parts;
    for (const std::string& part : source::part_names(*split)) parts.push_back(ref.name + "." + part);
    if (std::find(parts.begin(), parts.end(), ref.text()) != parts.end()) return std::nullopt;
    return document_.at_value(
        at,
        ref.part.empty() ? fmt::format("source \"{}\" is split: take {}", ref.name, fmt::join(parts, " or "))
                         : fmt::format("source \"{}\" has no part \"{}\"; parts: {}", ref.name, ref.part,
                                       fmt::join(source::part_names(*split), ", ")),
        ref.part.empty() ? "" : nearest(ref.text(), parts));
  }

  /// Depth first; a reference to a source that is on the way closes a cycle.
  void cycles(const std::string& name) {
    if (done_.contains(name) || !sources_.contains(name)) return;
    way_.push_back(name);
    const auto refs = sources_.at(name).made_of();
    for (std::size_t i = 0; i < refs.size(); ++i) {
      const auto first = std::find(way_.begin(), way_.end(), refs[i].name);
      if (first == way_.end()) {
        cycles(refs[i].name);
      } else {
        problems_.push_back(document_.at_value(
            place(name, i), fmt::format("a source cannot be made of itself: {} -> {}",
                                        fmt::join(first, way_.end(), " -> "), refs[i].name)));
      }
    }
    way_.pop_back();
    done_.insert(name);
  }

  // From here on every reference is sound, and there are no cycles.

  int depth(const std::string& name) {
    if (const auto known = depths_.find(name); known != depths_.end()) return known->second;
    int deepest = 0;
    for (const SourceRef& ref : sources_.at(name).made_of()) deepest = std::max(deepest, 1 + depth(ref.name));
    return depths_[name] = deepest;
  }

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
        // Members of a zip share samples, but have each at one place.
        if (shared && !zip)
          out.twice = fmt::format("\"{}\" comes more than once in \"{}\"", use.source, name);
      }
      out.uses.insert(out.uses.end(), fresh.begin(), fresh.end());
    }
    return below_[name] = std::move(out);
  }

  const Document& document_;
  const std::map<std::string, SourceConfig>& sources_;
  std::vector<Problem>& problems_;
  Names names_, way_;
  std::set<std::string> done_;
  std::map<std::string, int> depths_;
  std::map<std::string, Below> below_;
};

/// Exactly one of `ways`.
void check_ways(const Document& document, const Pointer& at, const Names& ways,
                std::vector<Problem>& problems) {
  Names given;
  for (const std::string& way : ways)
    if (document.value.contains(at / way)) given.push_back(way);
  if (given.size() == 1) return;
  problems.push_back(document.at_key(
      at, given.empty() ? fmt::format("needs one of {}", fmt::join(ways, ", "))
                        : fmt::format("has {}; it takes one of them", fmt::join(given, " and "))));
}

/// Whether `name` is one of the members; else a problem at `at`.
void check_member(const Document& document, const Pointer& source, Problem problem, const std::string& name,
                  std::vector<Problem>& problems) {
  Names members;
  for (const SourceRef& ref : source::source_refs().read(document.value.at(source / "of"), {}))
    members.push_back(ref.text());
  if (std::find(members.begin(), members.end(), name) != members.end()) return;
  problem.message = fmt::format("\"{}\" is none of its members: {}", name, fmt::join(members, ", "));
  problem.suggestion = nearest(name, members);
  problems.push_back(std::move(problem));
}

}  // namespace

void check_composites(const Document& document, const std::map<std::string, SourceConfig>& sources,
                      std::vector<Problem>& problems) {
  if (!sources.empty()) Checker(document, sources, problems).all();
}

void check_composite(const Document& document, const Pointer& at, std::vector<Problem>& problems) {
  const auto& value = document.value.at(at);
  if (value.at("type") == "subset")
    check_ways(document, at, {"first", "fraction", "classes", "list", "indices"}, problems);
  if (value.at("type") == "relabel" && !value.contains("remap") && !value.contains("classes"))
    problems.push_back(document.at_key(at, "needs remap or classes"));
  if (value.at("type") != "zip") return;
  if (value.contains("label"))
    check_member(document, at, document.at_value(at / "label", ""), value["label"].get<std::string>(),
                 problems);
  const auto rename = value.value("rename", nlohmann::json::object());
  for (const auto& [member, ignored] : rename.items())
    check_member(document, at, document.at_key(at / "rename" / member, ""), member, problems);
}

}  // namespace headrace::server::config
