// Random datasets that can be kept in GPU memory, with chains for them.
#pragma once

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "clientlib/gpu/resident/plan.h"
#include "server/sampler/order.h"
#include "server/transform/op.h"
#include "server/transform/ops/ops.h"
#include "server/transform/resident_steps.h"
#include "tests/device_chains.h"

namespace headrace::server::transform::testing {

/// A set: its pictures as a source gives them, sample i of class 7 i.
struct ResidentSample {
  PlanConfig config;
  PlanConfig before;  ///< makes the resident pictures
  StreamInfo info;
  decode::PixelShape shape;
  std::vector<std::vector<std::uint8_t>> pictures;

  /// The content of device memory.
  [[nodiscard]] std::vector<std::byte> upload(const gpu::SetPlan& plan) const {
    std::vector<std::byte> memory(plan.bytes);
    const auto once = or_throw(Plan::compile(before));
    Scratch scratch;
    for (std::size_t i = 0; i < pictures.size(); ++i) {
      once.render({pictures[i], shape}, {}, scratch,
                  memory.data() + plan.fields[0].offset + i * once.row_bytes());
      const std::int64_t label = static_cast<std::int64_t>(i) * 7;
      std::memcpy(memory.data() + plan.fields[1].offset + i * sizeof label, &label, sizeof label);
    }
    return memory;
  }
};

class ResidentMaker : public ChainMaker {
 public:
  using ChainMaker::ChainMaker;

  ResidentSample set() {
    ResidentSample out;
    PlanConfig& config = out.config;
    config.channels = between(0, 2) == 0 ? 1 : 3;
    const bool square = coin();
    const std::int32_t most = coin() ? 40 : 4;  // narrow ones: their rows are as far apart as a few pixels
    const std::int32_t height = between(1, most), width = square ? height : between(1, most);
    out.shape = {width, height, config.channels, false};
    config.input = {height, width};
    Size size{height, width};
    if (between(0, 3) == 0) config.transforms.emplace_back(resized(size));
    if (between(0, 3) == 0)
      config.transforms.emplace_back(make_op("center_crop", {{"size", both(size = one_size(size))}}));
    for (std::int32_t left = between(0, 4); left > 0; --left) add_step(config, size);
    config.output.layout = coin() ? PixelLayout::kNchw : PixelLayout::kNhwc;
    constexpr DType kTypes[] = {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32};
    config.output.dtype = kTypes[random()() % 4];
    if (config.output.dtype != DType::kUInt8 && coin()) {
      config.transforms.push_back(normalize(config.channels));
    }
    auto chain = or_throw(resident_chain(config));
    out.before = std::move(chain.upload);
    describe(out, std::move(chain.image));
    for (std::uint64_t i = 0; i < out.info.samples; ++i)
      out.pictures.push_back(random_picture(width, height, config.channels, random()));
    return out;
  }

  /// Draws an epoch and a launch of one to three batches, whose layout is `layout`. Returns their number.
  std::int32_t draw_launch(const ResidentSample& set, const gpu::BatchLayout& layout, gpu::RowJob& job) {
    job.epoch = random()();
    job.order = draws::epoch_order(job.samples, job.seed, job.epoch);
    const std::int32_t batches = between(1, 3);
    job.batch_rows = between(1, static_cast<std::int32_t>(set.info.batch_size));
    job.batch_bytes = layout.bytes;
    job.batch_positions = random()() % (2 * job.samples);
    job.rows = batches * job.batch_rows;
    job.first = random()() % (2 * job.samples);
    job.blocks_at_once = between(1, 2000);
    job.parts = coin() ? gpu::row_parts(job) : between(1, 4);
    return batches;
  }

 private:
  Size one_size(Size from) {
    const std::int32_t most = coin() ? 45 : 6;
    Size to{between(1, most), between(1, most)};
    if (from.height == from.width && coin()) to.width = to.height;
    return to;
  }
  Transform resized(Size& size) {
    size = one_size(size);
    return make_op("resize", {{"size", both(size)}, {"interpolation", interpolation()}});
  }
  void add_step(PlanConfig& config, Size& size) {
    auto& chain = config.transforms;
    switch (between(0, size.height == size.width ? 5 : 4)) {
      case 0:
        chain.emplace_back(make_op("random_horizontal_flip", {{"p", between(0, 4) / 4.0}}));
        return;
      case 1:
        chain.emplace_back(make_op("random_vertical_flip", {{"p", between(0, 4) / 4.0}}));
        return;
      case 2:
        chain.emplace_back(make_op("center_crop", {{"size", both(size = one_size(size))}}));
        return;
      case 3:
        chain.emplace_back(skipped());
        return;
      case 5:
        chain.emplace_back(make_op("random_rotate90"));
        return;
      default: {
        nlohmann::json crop = {{"size", both(size = one_size(size))}, {"pad_if_needed", true}};
        crop["padding_mode"] = padding_mode();
        if (coin()) crop["padding"] = {between(0, 9), between(0, 50), 3, 0};
        crop["fill"] = fill(config.channels);
        chain.push_back(make_op("random_crop", crop));
      }
    }
  }
  void describe(ResidentSample& out, DeviceImage image) {
    StreamInfo& info = out.info;
    info.name = "train";
    info.samples = static_cast<std::uint64_t>(between(1, 20));
    info.batch_size = static_cast<std::uint32_t>(between(1, 9));
    info.shuffle = coin();
    info.fields = {or_throw(Plan::compile(out.config)).image_field(),
                   {"label", DType::kInt64, FieldKind::kDense, {}}};
    info.residence = Residence{.upload = "train.resident", .seed = random()(), .image = std::move(image)};
  }
};

}  // namespace headrace::server::transform::testing
