#include "server/config/composites.h"

#include <nlohmann/json.hpp>

#include "server/described/units.h"

namespace headrace::server::config {
namespace {

using described::absolute;
using nlohmann::json;

using Texts = std::vector<std::string>;

template <class Split>
Texts keys(const Split& split) {
  Texts out;
  for (const auto& [name, ignored] : split.parts) out.push_back(name);
  return out;
}

}  // namespace

Texts SplitConfig::part_names() const {
  return std::visit([](const auto& split) { return keys(split); }, by);
}

SourceRef SourceRef::of(const std::string& text) {
  const auto dot = text.find('.');
  return {text.substr(0, dot), dot == std::string::npos ? "" : text.substr(dot + 1)};
}

std::vector<SourceRef> read_refs(const json& of) {
  std::vector<SourceRef> out;
  for (const json& one : of.is_array() ? of : json::array({of}))
    out.push_back(SourceRef::of(one.get<std::string>()));
  return out;
}

SplitConfig read_split(const json& value, const std::filesystem::path& folder) {
  SplitConfig out;
  out.seed = value.value("seed", std::uint64_t{0});
  if (value.contains("classes")) {
    out.by = SplitClasses{value["classes"].get<std::map<std::string, Texts>>()};
  } else if (value.contains("lists")) {
    SplitLists lists;
    for (const auto& [name, path] : value["lists"].items())
      lists.parts[name] = absolute(folder, path.get<std::string>());
    out.by = std::move(lists);
  } else {
    out.by = SplitFractions{value.value("fractions", std::map<std::string, double>{})};
  }
  return out;
}

SubsetSource read_subset(const json& value, const std::filesystem::path& folder) {
  SubsetSource out{.of = read_refs(value.at("of")), .by = {}};
  if (value.contains("first")) {
    out.by = FirstSamples{value["first"].get<std::uint64_t>()};
  } else if (value.contains("indices")) {
    out.by = IndexFile{absolute(folder, value["indices"].get<std::string>())};
  } else {
    SplitConfig split{.seed = value.value("seed", std::uint64_t{0}), .by = {}};
    if (value.contains("fraction")) split.by = SplitFractions{{{"", value["fraction"].get<double>()}}};
    if (value.contains("classes")) split.by = SplitClasses{{{"", value["classes"].get<Texts>()}}};
    if (value.contains("list"))
      split.by = SplitLists{{{"", absolute(folder, value["list"].get<std::string>())}}};
    out.by = std::move(split);
  }
  return out;
}

ZipSource read_zip(const json& value) {
  ZipSource out{.of = read_refs(value.at("of")), .options = {}};
  out.options.rename = value.value("rename", out.options.rename);
  out.options.label = value.value("label", out.options.label);
  return out;
}

RelabelSource read_relabel(const json& value) {
  RelabelSource out{.of = read_refs(value.at("of")), .options = {}};
  const json remap = value.value("remap", json::object());
  for (const auto& [from, to] : remap.items())
    out.options.remap[from] = to.is_string() ? to.get<std::string>() : to.dump();
  out.options.classes = value.value("classes", out.options.classes);
  return out;
}

}  // namespace headrace::server::config
