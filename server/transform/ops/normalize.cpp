// v2.ToDtype(float32, scale=True), then v2.Normalize(mean, std)
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct Normalize : DescribedOp<Normalize> {
  std::vector<double> mean, std;  ///< one per channel

  static described::Description<Normalize> description() {
    const auto numbers = [](const described::Codec<double>& one) {
      return described::expecting("a list of 3 numbers (red, green, blue), or of 1 (gray)",
                                  described::list(one, 1, 3));
    };
    return {"normalize",
            "(x / 255 - mean) / std, per channel; for float outputs.",
            {described::required("mean", &Normalize::mean, numbers(described::number()),
                                 "One number per channel, of values from 0 to 1."),
             described::required("std", &Normalize::std, numbers(described::number_above(0)),
                                 "One number per channel.")}};
  }

  [[nodiscard]] Traits traits() const override { return {.stage = Stage::kNormalize, .draws = false}; }
  std::string check(ChainState& state) const override {
    if (mean.size() != std.size())
      return fmt::format("normalize has {} means and {} stds: give one of each per channel", mean.size(),
                         std.size());
    const auto finite = [](double v) { return std::isfinite(static_cast<float>(v)); };
    if (mean.size() != state.channels)
      return fmt::format("normalize: expected {} in each of mean and std, one per channel, found {}",
                         state.channels == 1 ? "1 number (gray images)" : "3 numbers (red, green, blue)",
                         mean.size());
    if (!std::all_of(mean.begin(), mean.end(), finite) || !std::all_of(std.begin(), std.end(), finite))
      return "normalize: mean and std must be finite as float32";
    const auto positive = [](double v) { return static_cast<float>(v) > 0.0F; };
    return std::all_of(std.begin(), std.end(), positive) ? "" : "normalize: std must be above 0";
  }
  [[nodiscard]] std::string warning() const override {
    if (std::any_of(mean.begin(), mean.end(), [](double v) { return v <= 1; })) return {};
    return "normalize subtracts means above 1 from values of 0 to 1: give `mean` and `std` for such values";
  }
  void add_to(Values& values) const override {
    values.mean = mean;
    values.std = std;
  }
  [[nodiscard]] std::optional<DeviceShare> device_share() const override { return DeviceShare{}; }
  [[nodiscard]] std::string resident_obstacle(std::int32_t) const override { return {}; }
};

}  // namespace

namespace ops {
OpType normalize() {
  return op_type<Normalize>();
}
}  // namespace ops

}  // namespace headrace::server::transform
