// BT.601 luma of 16 to 235, as MATLAB's rgb2ycbcr, in one channel; after all geometry. Not in torchvision.
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct ToY : DescribedOp<ToY> {
  static described::Description<ToY> description() {
    return {"to_y", "BT.601 luma, 16 to 235, as MATLAB's rgb2ycbcr; after all geometry.", {}};
  }

  [[nodiscard]] Traits traits() const override { return {.stage = Stage::kLuma, .draws = false}; }
  std::string check(ChainState& state) const override {
    state.channels = 1;
    return {};
  }
  void add_to(Values& values) const override { values.luma = true; }
  [[nodiscard]] std::optional<DeviceShare> device_share() const override { return DeviceShare{.steps = 1}; }
};

}  // namespace

namespace ops {
OpType to_y() {
  return op_type<ToY>();
}
}  // namespace ops

}  // namespace headrace::server::transform
