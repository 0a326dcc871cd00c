#include "server/sampler/sampler.h"

#include <algorithm>

#include "clientlib/base/contract.h"

namespace headrace::server::sampler {
namespace {

/// Every sample of the source once.
class Whole : public Sampler {
 public:
  explicit Whole(std::uint64_t n) : n_(n) { require(n >= 1, "a sampler of nothing"); }

  [[nodiscard]] std::uint64_t size() const override { return n_; }
  [[nodiscard]] EpochOrder order(std::uint64_t) const override { return {}; }
  [[nodiscard]] std::uint64_t substitute(std::uint64_t, Draws& draws) const override {
    return draws.below(static_cast<std::uint32_t>(std::min<std::uint64_t>(n_, 0xFFFFFFFF)));
  }
  [[nodiscard]] std::uint64_t reach() const override { return n_; }
  [[nodiscard]] bool repeats() const override { return false; }

 private:
  const std::uint64_t n_;
};

class Shuffled final : public Whole {
 public:
  Shuffled(std::uint64_t n, std::uint64_t seed) : Whole(n), seed_(seed) {}

  [[nodiscard]] EpochOrder order(std::uint64_t epoch) const override {
    return EpochOrder(Permutation(size(), seed_, epoch));
  }

 private:
  const std::uint64_t seed_;
};

class Epochs final : public Whole {
 public:
  using Whole::Whole;

  [[nodiscard]] EpochOrder order(std::uint64_t epoch) const override { return {*this, epoch}; }
  [[nodiscard]] std::uint64_t substitute(std::uint64_t bad, Draws&) const override { return bad; }

 private:
  [[nodiscard]] std::uint64_t choose(std::uint64_t epoch, std::uint64_t position) const override {
    return epoch * size() + position;
  }
};

}  // namespace

SamplerPtr make_sequential(std::uint64_t n) {
  return std::make_shared<Whole>(n);
}

SamplerPtr make_shuffled(std::uint64_t n, std::uint64_t seed) {
  return std::make_shared<Shuffled>(n, seed);
}

SamplerPtr make_epochs(std::uint64_t n) {
  return std::make_shared<Epochs>(n);
}

}  // namespace headrace::server::sampler
