// The configuration of samplers as plain structs: one per way to choose samples (server/sampler).
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

// `samples`: positions of an epoch; none: as many as the source has samples.

struct WeightedSampler {
  enum class By : std::uint8_t { kClass, kFile, kField };
  By by = By::kClass;
  std::map<std::string, double> weights;  ///< kClass: of each sample of the class; >= 0, one above 0
  std::filesystem::path path;             ///< kFile: absolute; see server/source/combine/sample_weights.h
  std::string field;                      ///< kField
  std::optional<double> other;            ///< of classes and paths without a weight; none: that is an error
  std::optional<std::uint64_t> samples;

  static described::Description<WeightedSampler> description();
};
struct BalancedSampler {
  std::optional<std::uint64_t> samples;

  static described::Description<BalancedSampler> description();
};
struct PkSampler {
  std::uint32_t classes = 1, per_class = 1;  ///< P and K
  bool repeat_small = false;                 ///< also classes of fewer than K samples
  std::optional<std::uint64_t> samples;      ///< rounded down to whole groups of P*K, at least one

  static described::Description<PkSampler> description();
};
struct ListSampler {
  std::filesystem::path path;  ///< absolute; see server/source/combine/sample_list.h
  bool shuffle = false;

  static described::Description<ListSampler> description();
};
using SamplerConfig = std::variant<WeightedSampler, BalancedSampler, PkSampler, ListSampler>;

/// A sampler, or none: one of the words that `shuffle` says, too. Written without paths, as the files'
/// content counts.
described::Codec<std::optional<SamplerConfig>> sampler();

}  // namespace headrace::server::config
