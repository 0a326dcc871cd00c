// The configuration of samplers as plain structs: one per way to choose samples (server/sampler).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>

namespace headrace::server::config {

struct WeightsByClass {
  std::map<std::string, double> weights;  ///< of each sample of the class; >= 0, one above 0
};
struct WeightsByFile {
  std::filesystem::path path;  ///< absolute; see server/source/combine/sample_weights.h
};
struct WeightsByField {
  std::string field;
};

// `samples`: positions of an epoch; none: as many as the source has samples.

struct WeightedSampler {
  std::variant<WeightsByClass, WeightsByFile, WeightsByField> by;
  std::optional<double> other;  ///< of classes and paths without a weight; none: that is an error
  std::optional<std::uint64_t> samples;
};
struct BalancedSampler {
  std::optional<std::uint64_t> samples;
};
struct PkSampler {
  std::uint32_t classes = 1, per_class = 1;  ///< P and K
  bool repeat_small = false;                 ///< also classes of fewer than K samples
  std::optional<std::uint64_t> samples;      ///< rounded down to whole groups of P*K, at least one
};
struct ListSampler {
  std::filesystem::path path;  ///< absolute; see server/source/combine/sample_list.h
  bool shuffle = false;
};
using SamplerConfig = std::variant<WeightedSampler, BalancedSampler, PkSampler, ListSampler>;

/// Of a value that the schema holds good; none: one of the words that `shuffle` says too. Relative paths are
/// relative to `folder`.
std::optional<SamplerConfig> read_sampler(const nlohmann::json& value, const std::filesystem::path& folder);

/// The sampler with all of its arguments, under its name; without paths, as the files' content counts.
nlohmann::json canonical(const SamplerConfig& sampler);

}  // namespace headrace::server::config
