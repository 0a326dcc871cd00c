#include "server/config/samplers.h"

#include <nlohmann/json.hpp>

#include "server/config/units.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

template <class T>
std::optional<T> maybe(const json& value, const char* key) {
  const auto found = value.find(key);
  return found == value.end() ? std::nullopt : std::optional(found->get<T>());
}

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

WeightedSampler weighted(const json& value, const std::filesystem::path& folder) {
  WeightedSampler out;
  const auto by = value.at("by").get<std::string>();
  if (by == "class") out.by = WeightsByClass{value.value("weights", std::map<std::string, double>{})};
  if (by == "file") out.by = WeightsByFile{absolute(folder, value.value("path", std::string()))};
  if (by == "field") out.by = WeightsByField{value.value("field", std::string())};
  out.other = maybe<double>(value, "other");
  return out;
}

struct Canonical {
  json operator()(const WeightedSampler& sampler) const {
    json out = {{"other", or_null(sampler.other)}, {"samples", or_null(sampler.samples)}};
    if (const auto* by = std::get_if<WeightsByClass>(&sampler.by)) out["weights"] = by->weights;
    if (const auto* by = std::get_if<WeightsByField>(&sampler.by)) out["field"] = by->field;
    return {{"weighted", std::move(out)}};
  }
  json operator()(const BalancedSampler& sampler) const {
    return {{"balanced", {{"samples", or_null(sampler.samples)}}}};
  }
  json operator()(const PkSampler& sampler) const {
    return {{"pk",
             {{"p", sampler.classes},
              {"k", sampler.per_class},
              {"small_classes", sampler.repeat_small ? "repeat" : "refuse"},
              {"samples", or_null(sampler.samples)}}}};
  }
  json operator()(const ListSampler& sampler) const { return {{"list", {{"shuffle", sampler.shuffle}}}}; }
};

}  // namespace

std::optional<SamplerConfig> read_sampler(const json& value, const std::filesystem::path& folder) {
  const auto name = value.is_string() ? value.get<std::string>() : value.begin().key();
  const json arguments = value.is_string() || value.begin()->is_null() ? json::object() : *value.begin();
  const auto samples = maybe<std::uint64_t>(arguments, "samples");
  if (name == "weighted") {
    auto out = weighted(arguments, folder);
    out.samples = samples;
    return out;
  }
  if (name == "balanced") return BalancedSampler{samples};
  if (name == "pk")
    return PkSampler{arguments.at("p").get<std::uint32_t>(), arguments.at("k").get<std::uint32_t>(),
                     arguments.value("small_classes", "refuse") == "repeat", samples};
  if (name == "list")
    return ListSampler{absolute(folder, arguments.value("path", std::string())),
                       arguments.value("shuffle", false)};
  return std::nullopt;
}

json canonical(const SamplerConfig& sampler) {
  return std::visit(Canonical{}, sampler);
}

}  // namespace headrace::server::config
