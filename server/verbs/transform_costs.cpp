#include "server/verbs/transform_costs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/transform/op.h"
#include "server/verbs/measure.h"

namespace headrace::server::verbs {
namespace {

/// Runs differ by less than this without any cause.
constexpr double kNoise = 0.05;

config::Config without(config::Config config, std::size_t transform) {
  transform::StreamPlan& plan = config.streams.begin()->second.plan;
  const auto at = static_cast<std::ptrdiff_t>(transform);
  plan.chain.transforms.erase(plan.chain.transforms.begin() + at);
  plan.only.erase(plan.only.begin() + at);
  return config;
}

Result<double> us_per_sample(const config::Config& config, double seconds) {
  const auto run = measure(config, config.streams.begin()->first, 0, seconds);
  if (!run) return tl::make_unexpected(run.error());
  return run->at("cpu_us_per_sample").get<double>();
}

}  // namespace

Result<TransformCosts> transform_costs(const config::Config& config, double seconds) {
  const auto all = us_per_sample(config, seconds);
  if (!all) return tl::make_unexpected(all.error());
  TransformCosts out{*all, {}};
  const auto& transforms = config.streams.begin()->second.plan.chain.transforms;
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    const auto rest = us_per_sample(without(config, i), seconds);
    if (!rest && rest.error().code == ErrorCode::kDraining) return tl::make_unexpected(rest.error());
    if (rest && *all - *rest > kNoise * *all)
      out.dearest.push_back({std::string(transforms[i]->name()), *all - *rest});
  }
  std::sort(out.dearest.begin(), out.dearest.end(),
            [](const TransformCosts::One& a, const TransformCosts::One& b) { return a.us > b.us; });
  return out;
}

}  // namespace headrace::server::verbs
