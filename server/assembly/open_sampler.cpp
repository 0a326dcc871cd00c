#include "server/assembly/open_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/base/human.h"
#include "clientlib/ring/segment.h"
#include "server/sampler/by_class.h"
#include "server/sampler/weighted.h"
#include "server/source/combine/sample_list.h"
#include "server/source/combine/sample_weights.h"
#include "server/source/formats/feed.h"
#include "server/source/formats/supplied.h"
#include "server/source/labels.h"

namespace headrace::server::assembly {
namespace {

using sampler::SamplerPtr;

constexpr std::size_t kShown = 10;

std::string first_of(std::vector<std::string> names) {
  const bool more = names.size() > kShown;
  if (more) names.resize(kShown);
  return fmt::format("{}{}", fmt::join(names, ", "), more ? ", ..." : "");
}

std::string class_name(const source::Source& source, std::int64_t label) {
  const auto& names = source.class_names();
  const auto known = label >= 0 && static_cast<std::uint64_t>(label) < names.size();
  return known ? names[static_cast<std::size_t>(label)] : fmt::format("label {}", label);
}

Result<sampler::ClassIndex> classes_of(const source::Source& source) {
  if (!source.labelled())
    return fail(ErrorCode::kConfigInvalid,
                "goes by class, but the source's samples have none; sample by `file`, `list` or `shuffled`");
  if (source.size() > sampler::kMostSamples)
    return fail(ErrorCode::kConfigInvalid, fmt::format("{} samples: sampling by class supports at most {}",
                                                       source.size(), sampler::kMostSamples));
  std::vector<std::int64_t> labels(source.size());
  for (std::uint64_t i = 0; i < labels.size(); ++i) labels[i] = source.label(i);
  return sampler::ClassIndex(labels);
}

Result<std::vector<double>> weights_by_class(const config::WeightedSampler& by,
                                             const source::Source& source) {
  const auto classes = classes_of(source);
  if (!classes) return fail(classes.error());
  const auto& names = source.class_names();
  for (const auto& [name, ignored] : by.weights) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("a weight is of {}", source::unknown_class(name, names)));
  }
  std::vector<double> out(source.size());
  std::vector<std::string> without;
  for (std::uint64_t c = 0; c < classes->size(); ++c) {
    const auto name = class_name(source, classes->label(c));
    const auto found = by.weights.find(name);
    if (found == by.weights.end() && !by.other) without.push_back(name);
    const double weight = found == by.weights.end() ? by.other.value_or(0) : found->second;
    for (const std::uint32_t i : classes->members(c)) out[i] = weight;
  }
  if (!without.empty())
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{} of {} classes have no weight: {}; give them one, or say what `other` classes "
                            "weigh",
                            without.size(), classes->size(), first_of(without)));
  return out;
}

/// While samplers' tables are built, they take 17 bytes per sample by class, 30 by weight.
Result<void> check_tables(std::uint64_t samples) {
  constexpr std::uint64_t kTableBytes = 32;
  const ring::MemoryHeadroom headroom = ring::memory_headroom();
  if (samples <= headroom.bytes / kTableBytes) return {};
  return fail(ErrorCode::kNotEnoughMemory,
              fmt::format("its tables of {} samples take up to {}, {} are available ({}): "
                          "`shuffled` has none; or make the source smaller",
                          samples, human_bytes(samples * kTableBytes), human_bytes(headroom.bytes),
                          headroom.limited_by));
}

/// Opens each kind of sampler.
struct Open {
  const config::StreamConfig& stream;
  const source::Source& source;

  Result<SamplerPtr> operator()(const config::WeightedSampler& config) const {
    using By = config::WeightedSampler::By;
    auto weights = config.by == By::kClass  ? weights_by_class(config, source)
                   : config.by == By::kFile ? source::read_weights(source, config.path, config.other)
                                            : source::weights_in_field(source, config.field);
    if (!weights) return fail(std::move(weights.error()));
    return sampler::make_weighted(*weights, config.samples.value_or(source.size()), stream.seed);
  }

  Result<SamplerPtr> operator()(const config::BalancedSampler& config) const {
    auto classes = classes_of(source);
    if (!classes) return fail(std::move(classes.error()));
    return sampler::make_balanced(std::move(*classes), config.samples.value_or(source.size()), stream.seed);
  }

  Result<SamplerPtr> operator()(const config::PkSampler& config) const {
    auto classes = classes_of(source);
    if (!classes) return fail(std::move(classes.error()));
    if (config.classes > classes->size())
      return fail(ErrorCode::kConfigInvalid,
                  fmt::format("pk: groups of p = {} classes, but only {} have samples: lower p",
                              config.classes, classes->size()));
    std::vector<std::string> small;
    for (std::uint64_t c = 0; c < classes->size(); ++c)
      if (const auto n = classes->members(c).size(); n < config.per_class)
        small.push_back(fmt::format("{} ({})", class_name(source, classes->label(c)), n));
    if (!small.empty() && !config.repeat_small)
      return fail(ErrorCode::kConfigInvalid,
                  fmt::format("pk: {} of {} classes have fewer than k = {} samples: {}; lower k, or set "
                              "`small_classes: repeat`",
                              small.size(), classes->size(), config.per_class, first_of(small)));
    const std::uint64_t group = std::uint64_t{config.classes} * config.per_class;
    const std::uint64_t groups = config.samples.value_or(source.size()) / group;
    return sampler::make_pk(std::move(*classes),
                            {.classes = config.classes,
                             .samples = config.per_class,
                             .groups = std::max<std::uint64_t>(groups, 1)},
                            stream.seed);
  }

  Result<SamplerPtr> operator()(const config::ListSampler& config) const {
    auto list = source::read_sample_list(source, config.path);
    if (!list) return fail(std::move(list.error()));
    return sampler::make_listed(std::move(*list), config.shuffle, stream.seed);
  }
};

}  // namespace

Result<SamplerPtr> open_sampler(const config::StreamConfig& stream, const source::Source& source) {
  if (const auto* fed = dynamic_cast<const source::Fed*>(&source))
    return sampler::make_epochs(fed->feed()->options().samples);
  if (dynamic_cast<const source::Supplied*>(&source) != nullptr)  // the sampler chose elsewhere
    return sampler::make_sequential(source.size());
  if (stream.sampler) {
    if (!std::holds_alternative<config::ListSampler>(*stream.sampler))
      if (auto fits = check_tables(source.size()); !fits) return fail(std::move(fits.error()));
    return std::visit(Open{stream, source}, *stream.sampler);
  }
  return stream.shuffle ? sampler::make_shuffled(source.size(), stream.seed)
                        : sampler::make_sequential(source.size());
}

}  // namespace headrace::server::assembly
