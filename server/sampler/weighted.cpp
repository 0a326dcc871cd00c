#include "server/sampler/weighted.h"

#include <xxhash.h>

#include <algorithm>

#include "clientlib/base/contract.h"
#include "server/sampler/alias_table.h"

namespace headrace::server::sampler {
namespace {

constexpr std::uint32_t kWeightedStage = 0xFFFF0011;

class Weighted final : public Sampler {
 public:
  Weighted(AliasTable table, std::span<const double> weights, std::uint64_t samples, std::uint64_t seed)
      : table_(std::move(table)),
        samples_(samples),
        seed_(seed),
        reach_(weights.size() - static_cast<std::uint64_t>(std::count(weights.begin(), weights.end(), 0.0))),
        content_(XXH3_64bits(weights.data(), weights.size_bytes())) {}

  [[nodiscard]] std::uint64_t size() const override { return samples_; }
  [[nodiscard]] EpochOrder order(std::uint64_t epoch) const override { return {*this, epoch}; }
  [[nodiscard]] std::uint64_t substitute(std::uint64_t, Draws& draws) const override {
    return table_.draw(draws);
  }
  [[nodiscard]] std::uint64_t reach() const override { return reach_; }
  [[nodiscard]] std::uint64_t content() const override { return content_; }

 private:
  [[nodiscard]] std::uint64_t choose(std::uint64_t epoch, std::uint64_t position) const override {
    Draws draws(seed_, epoch, position, kWeightedStage);
    return table_.draw(draws);
  }

  const AliasTable table_;
  const std::uint64_t samples_, seed_, reach_, content_;
};

class Listed final : public Sampler {
 public:
  Listed(std::vector<std::uint64_t> list, bool shuffled, std::uint64_t seed)
      : list_(std::move(list)), shuffled_(shuffled), seed_(seed) {
    require(!list_.empty() && list_.size() <= kMostSamples, "a list without samples, or with too many");
    auto sorted = list_;
    std::sort(sorted.begin(), sorted.end());
    reach_ = static_cast<std::uint64_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
    content_ = XXH3_64bits(list_.data(), list_.size() * sizeof(std::uint64_t));
  }

  [[nodiscard]] std::uint64_t size() const override { return list_.size(); }
  [[nodiscard]] EpochOrder order(std::uint64_t epoch) const override {
    if (!shuffled_) return {*this, epoch};
    return {*this, epoch, Permutation(list_.size(), seed_, epoch)};
  }
  [[nodiscard]] std::uint64_t substitute(std::uint64_t, Draws& draws) const override {
    return list_[draws.below(static_cast<std::uint32_t>(list_.size()))];
  }
  [[nodiscard]] std::uint64_t reach() const override { return reach_; }
  [[nodiscard]] std::uint64_t content() const override { return content_; }

 private:
  [[nodiscard]] std::uint64_t choose(std::uint64_t, std::uint64_t position) const override {
    return list_[position];
  }

  const std::vector<std::uint64_t> list_;
  const bool shuffled_;
  const std::uint64_t seed_;
  std::uint64_t reach_ = 0, content_ = 0;
};

}  // namespace

Result<SamplerPtr> make_weighted(std::span<const double> weights, std::uint64_t samples, std::uint64_t seed) {
  require(samples >= 1, "an epoch without samples");
  auto table = AliasTable::make(weights);
  if (!table) return fail(std::move(table.error()));
  return std::make_shared<Weighted>(std::move(*table), weights, samples, seed);
}

SamplerPtr make_listed(std::vector<std::uint64_t> list, bool shuffled, std::uint64_t seed) {
  return std::make_shared<Listed>(std::move(list), shuffled, seed);
}

}  // namespace headrace::server::sampler
