#include "server/transform/stream_plan.h"

#include <algorithm>
#include <set>

#include "server/transform/op.h"

namespace headrace::server::transform {
namespace {

bool is_for(const std::vector<std::string>& only, const std::string& field) {
  return only.empty() || std::find(only.begin(), only.end(), field) != only.end();
}

}  // namespace

PlanConfig StreamPlan::chain_of(const std::string& field, bool mask) const {
  PlanConfig out = chain;
  for (std::size_t i = 0; i < out.transforms.size(); ++i) {
    Transform& transform = out.transforms[i];
    if (!is_for(i < only.size() ? only[i] : std::vector<std::string>{}, field) ||
        (mask && !transform->traits().masks))
      transform = skipped();
  }
  out.mask = mask;
  return out;
}

bool StreamPlan::crops() const {
  for (const Transform& transform : chain.transforms) {
    const auto traits = transform->traits();
    if (traits.crops || !traits.geometry) return traits.crops;
  }
  return false;
}

std::vector<std::string> StreamPlan::named() const {
  std::set<std::string> names;
  for (const auto& fields : only) names.insert(fields.begin(), fields.end());
  return {names.begin(), names.end()};
}

}  // namespace headrace::server::transform
