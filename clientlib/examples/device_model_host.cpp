#include <vector>

#include "clientlib/examples/device_model.h"
#include "clientlib/examples/softmax_model.h"

namespace {

class HostModel final : public DeviceModel {
 public:
  HostModel(std::size_t classes, float rate) : model_(classes, rate) {}
  [[nodiscard]] headrace::gpu::StreamHandle stream() const override { return 0; }

  void step(const headrace::gpu::DeviceBatch& batch) override {
    const auto image = batch.field("image").value();
    const auto label = batch.field("label").value();
    const std::vector<headrace::RowInfo>& rows = batch.rows();
    losses_ += model_.step(
        {reinterpret_cast<const float*>(image.data), reinterpret_cast<const std::int64_t*>(label.data),
         static_cast<std::size_t>(image.shape[2]), static_cast<std::size_t>(image.shape[3]), rows});
    ++steps_;
  }

  double mean_loss() override {
    const double mean = losses_ / steps_;
    losses_ = steps_ = 0;
    return mean;
  }

 private:
  SoftmaxModel model_;
  double losses_ = 0, steps_ = 0;
};

}  // namespace

std::unique_ptr<DeviceModel> host_model(std::size_t classes, float rate) {
  return std::make_unique<HostModel>(classes, rate);
}
