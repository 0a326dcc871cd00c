// Which samples an epoch visits, and in which order. All samplers are pure functions of their construction,
// the seed, the epoch and the position: a position costs O(1) time and memory, and there is no state to save
// or to resume.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "server/sampler/order.h"
#include "server/sampler/philox.h"

namespace headrace::server::sampler {

class EpochOrder;

/// Thread safety: immutable.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// Positions in an epoch; at least 1.
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  [[nodiscard]] virtual EpochOrder order(std::uint64_t epoch) const = 0;
  /// A replacement for the sample `bad`, chosen so that the sampler keeps its promise as far as possible: one
  /// of its class, one of the list, one by weight. May be `bad` itself.
  [[nodiscard]] virtual std::uint64_t substitute(std::uint64_t bad, Draws& draws) const = 0;
  /// How many different samples it can choose.
  [[nodiscard]] virtual std::uint64_t reach() const = 0;
  /// Whether a sample can occur more than once in an epoch, and so in a batch.
  [[nodiscard]] virtual bool repeats() const { return true; }
  /// xxh3 of its input that is neither in the dataset nor in the configuration; 0: there is none.
  [[nodiscard]] virtual std::uint64_t content() const { return 0; }

 private:
  friend class EpochOrder;
  /// The sample at a position, for an order without a fixed rule (its permutation, if it has one, was
  /// applied).
  [[nodiscard]] virtual std::uint64_t choose(std::uint64_t epoch, std::uint64_t position) const {
    return static_cast<void>(epoch), position;
  }
};

/// One epoch: maps a position to the sample's index in the source. A value without memory of its own; one
/// that refers to a sampler is valid as long as the sampler exists.
class EpochOrder {
 public:
  EpochOrder() = default;  ///< position p has sample p
  explicit EpochOrder(const Permutation& permutation) : permutation_(permutation) {}
  EpochOrder(const Sampler& sampler, std::uint64_t epoch) : sampler_(&sampler), epoch_(epoch) {}
  EpochOrder(const Sampler& sampler, std::uint64_t epoch, const Permutation& permutation)
      : permutation_(permutation), sampler_(&sampler), epoch_(epoch) {}

  /// position < the sampler's size().
  [[nodiscard]] std::uint64_t operator()(std::uint64_t position) const {
    const std::uint64_t at = permutation_ ? (*permutation_)(position) : position;
    return sampler_ == nullptr ? at : sampler_->choose(epoch_, at);
  }

  /// The same of many positions, in place.
  void apply(std::span<std::uint64_t> positions) const {
    if (permutation_) permutation_->apply(positions);
    if (sampler_ == nullptr) return;
    for (std::uint64_t& position : positions) position = sampler_->choose(epoch_, position);
  }

 private:
  std::optional<Permutation> permutation_;
  const Sampler* sampler_ = nullptr;
  std::uint64_t epoch_ = 0;
};

using SamplerPtr = std::shared_ptr<const Sampler>;

/// Each of n >= 1 samples once, in the source's order.
SamplerPtr make_sequential(std::uint64_t n);
/// Each of n >= 1 samples once, in another order each epoch.
SamplerPtr make_shuffled(std::uint64_t n, std::uint64_t seed);
/// Epochs of n >= 1 samples that are consecutive in the source: epoch * n + position.
SamplerPtr make_epochs(std::uint64_t n);

/// Limit of samplers that store something per sample.
constexpr std::uint64_t kMostSamples = 0xFFFFFFFF;

}  // namespace headrace::server::sampler
