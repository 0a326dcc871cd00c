#include "server/transform/stream_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace headrace::server::transform {
namespace {

constexpr std::int64_t kLargestMultiple = 64;

bool is_for(const std::vector<std::string>& only, const std::string& field) {
  return only.empty() || std::find(only.begin(), only.end(), field) != only.end();
}

}  // namespace

PlanConfig StreamPlan::chain_of(const std::string& field, bool mask) const {
  PlanConfig out = chain;
  for (std::size_t i = 0; i < out.transforms.size(); ++i) {
    Transform& transform = out.transforms[i];
    const bool colour =
        std::holds_alternative<Normalize>(transform) || std::holds_alternative<ToY>(transform);
    if (!is_for(i < only.size() ? only[i] : std::vector<std::string>{}, field) || (mask && colour))
      transform = NotHere{};
  }
  out.mask = mask;
  return out;
}

std::vector<std::string> StreamPlan::named() const {
  std::set<std::string> names;
  for (const auto& fields : only) names.insert(fields.begin(), fields.end());
  return {names.begin(), names.end()};
}

Result<std::int32_t> common_multiple(const StreamPlan& plan) {
  std::int64_t multiple = 1;
  for (const auto& [name, derived] : plan.derived)
    multiple = std::min(std::lcm(multiple, std::int64_t{derived.how.factor}), kLargestMultiple + 1);
  if (multiple > kLargestMultiple)
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("derive: the factors have no common multiple up to {}", kLargestMultiple));
  return static_cast<std::int32_t>(multiple);
}

}  // namespace headrace::server::transform
