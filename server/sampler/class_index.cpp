#include "server/sampler/class_index.h"

#include <algorithm>

#include "clientlib/base/contract.h"
#include "server/sampler/sampler.h"

namespace headrace::server::sampler {

ClassIndex::ClassIndex(std::span<const std::int64_t> labels) {
  require(!labels.empty() && labels.size() <= kMostSamples, "an index of no samples, or of too many");
  labels_.assign(labels.begin(), labels.end());
  std::sort(labels_.begin(), labels_.end());
  labels_.erase(std::unique(labels_.begin(), labels_.end()), labels_.end());
  labels_.shrink_to_fit();

  class_of_.reserve(labels.size());
  first_.assign(labels_.size() + 1, 0);
  for (const std::int64_t label : labels) {
    const auto found = std::lower_bound(labels_.begin(), labels_.end(), label) - labels_.begin();
    class_of_.push_back(static_cast<std::uint32_t>(found));
    ++first_[static_cast<std::size_t>(found) + 1];
  }
  for (std::size_t c = 1; c < first_.size(); ++c) first_[c] += first_[c - 1];
  members_.resize(labels.size());
  auto next = first_;
  for (std::uint32_t i = 0; i < class_of_.size(); ++i) members_[next[class_of_[i]]++] = i;
}

}  // namespace headrace::server::sampler
