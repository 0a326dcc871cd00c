// The samples of each class.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace::server::sampler {

/// Classes are renumbered by ascending label; labels without samples have no class. 8 bytes per sample.
/// Thread safety: immutable.
class ClassIndex {
 public:
  /// labels[i]: sample i's label. 1 to kMostSamples of them.
  explicit ClassIndex(std::span<const std::int64_t> labels);

  [[nodiscard]] std::uint64_t size() const { return labels_.size(); }
  [[nodiscard]] std::uint64_t samples() const { return class_of_.size(); }
  /// The label of class c.
  [[nodiscard]] std::int64_t label(std::uint64_t c) const { return labels_[c]; }
  /// The samples of class c, ascending.
  [[nodiscard]] std::span<const std::uint32_t> members(std::uint64_t c) const {
    return std::span(members_).subspan(first_[c], first_[c + 1] - first_[c]);
  }
  [[nodiscard]] std::uint32_t class_of(std::uint64_t sample) const { return class_of_[sample]; }

 private:
  std::vector<std::int64_t> labels_;
  std::vector<std::uint64_t> first_;  ///< start of each class in members_, and the end
  std::vector<std::uint32_t> members_, class_of_;
};

}  // namespace headrace::server::sampler
