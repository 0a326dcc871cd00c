#include "server/sampler/by_class.h"

#include <utility>

#include "clientlib/base/contract.h"

namespace headrace::server::sampler {
namespace {

constexpr std::uint32_t kClassStage = 0xFFFF0012;   // the order of classes
constexpr std::uint32_t kMemberStage = 0xFFFF0013;  // the order within a class

/// Element `at` of a permutation of n, keyed by a stage's draws for `key`.
struct Keyed {
  std::uint64_t seed, epoch;

  [[nodiscard]] std::uint64_t operator()(std::uint64_t n, std::uint64_t at, std::uint64_t key,
                                         std::uint32_t stage) const {
    return n == 1 ? 0 : Permutation(n, Draws(seed, epoch, key, stage))(at);
  }
};

class ByClass : public Sampler {
 public:
  ByClass(ClassIndex classes, std::uint64_t size, std::uint64_t seed)
      : classes_(std::move(classes)), size_(size), seed_(seed) {
    require(size >= 1, "an epoch without samples");
  }

  [[nodiscard]] std::uint64_t size() const final { return size_; }
  [[nodiscard]] EpochOrder order(std::uint64_t epoch) const final { return {*this, epoch}; }
  [[nodiscard]] std::uint64_t substitute(std::uint64_t bad, Draws& draws) const final {
    const auto members = classes_.members(classes_.class_of(bad));
    return members[draws.below(static_cast<std::uint32_t>(members.size()))];
  }
  [[nodiscard]] std::uint64_t reach() const final { return classes_.samples(); }

 protected:
  [[nodiscard]] const ClassIndex& classes() const { return classes_; }
  [[nodiscard]] Keyed keyed(std::uint64_t epoch) const { return {seed_, epoch}; }
  /// The sample at index `at` of the `pass`-th order of class c.
  [[nodiscard]] std::uint64_t member(std::uint64_t epoch, std::uint64_t c, std::uint64_t pass,
                                     std::uint64_t at) const {
    const auto members = classes_.members(c);
    return members[keyed(epoch)(members.size(), at, pass * classes_.size() + c, kMemberStage)];
  }

 private:
  const ClassIndex classes_;
  const std::uint64_t size_, seed_;
};

class Balanced final : public ByClass {
 public:
  using ByClass::ByClass;

 private:
  [[nodiscard]] std::uint64_t choose(std::uint64_t epoch, std::uint64_t position) const override {
    const std::uint64_t round = position / classes().size();
    const std::uint64_t c = keyed(epoch)(classes().size(), position % classes().size(), round, kClassStage);
    const std::uint64_t n = classes().members(c).size();
    return member(epoch, c, round / n, round % n);
  }
};

class Pk final : public ByClass {
 public:
  Pk(ClassIndex classes, const PkOptions& options, std::uint64_t seed)
      : ByClass(std::move(classes), options.groups * options.classes * options.samples, seed),
        p_(options.classes),
        k_(options.samples),
        groups_per_row_(this->classes().size() / options.classes) {}

 private:
  [[nodiscard]] std::uint64_t choose(std::uint64_t epoch, std::uint64_t position) const override {
    const std::uint64_t group = position / (p_ * k_);
    const std::uint64_t row = group / groups_per_row_;  // within a row each class occurs at most once
    const std::uint64_t slot = group % groups_per_row_ * p_ + position / k_ % p_;
    const std::uint64_t j = position % k_;
    const std::uint64_t c = keyed(epoch)(classes().size(), slot, row, kClassStage);
    const std::uint64_t n = classes().members(c).size();
    if (n >= k_) {
      const std::uint64_t rows_per_pass = n / k_;
      return member(epoch, c, row / rows_per_pass, row % rows_per_pass * k_ + j);
    }
    const std::uint64_t passes_per_row = (k_ + n - 1) / n;
    return member(epoch, c, row * passes_per_row + j / n, j % n);
  }

  const std::uint64_t p_, k_, groups_per_row_;
};

}  // namespace

SamplerPtr make_balanced(ClassIndex classes, std::uint64_t samples, std::uint64_t seed) {
  return std::make_shared<Balanced>(std::move(classes), samples, seed);
}

SamplerPtr make_pk(ClassIndex classes, const PkOptions& options, std::uint64_t seed) {
  require(options.classes >= 1 && options.classes <= classes.size() && options.samples >= 1,
          "groups of no samples, or of more classes than there are");
  return std::make_shared<Pk>(std::move(classes), options, seed);
}

}  // namespace headrace::server::sampler
