// The configuration of samplers as plain structs, one per way to choose samples (server/sampler).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "server/described/description.h"

namespace headrace::server::described {

template <class T>
struct Codec;

}  // namespace headrace::server::described

namespace headrace::server::config {

// `samples`: positions in an epoch; none: as many as the source has samples.

struct WeightedSampler {
  enum class By : std::uint8_t { kClass, kFile, kField };
  By by = By::kClass;
  std::map<std::string, double> weights;  ///< kClass: of each sample of the class; >= 0, at least one above 0
  std::filesystem::path path;             ///< kFile: absolute; see server/source/combine/sample_weights.h
  std::string field;                      ///< kField
  std::optional<double> other;            ///< of classes and paths without a weight; none: these are an error
  std::optional<std::uint64_t> samples;

  static described::Description<WeightedSampler> description();
};
struct BalancedSampler {
  std::optional<std::uint64_t> samples;

  static described::Description<BalancedSampler> description();
};
struct PkSampler {
  std::uint32_t classes = 1, per_class = 1;  ///< P and K
  bool repeat_small = false;                 ///< includes classes with fewer than K samples
  std::optional<std::uint64_t> samples;      ///< rounded down to complete groups of P*K, at least one

  static described::Description<PkSampler> description();
};
struct ListSampler {
  std::filesystem::path path;  ///< absolute; see server/source/combine/sample_list.h
  bool shuffle = false;

  static described::Description<ListSampler> description();
};
using SamplerConfig = std::variant<WeightedSampler, BalancedSampler, PkSampler, ListSampler>;

/// A sampler, or none: one of the words that `shuffle` also expresses. Written without paths, because the
/// files' content counts.
described::Codec<std::optional<SamplerConfig>> sampler();

}  // namespace headrace::server::config
