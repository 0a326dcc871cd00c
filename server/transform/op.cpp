#include "server/transform/op.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace headrace::server::transform {
namespace {

class Skipped : public Op {
 public:
  [[nodiscard]] std::string_view name() const override { return ""; }
  [[nodiscard]] nlohmann::json arguments() const override { return nlohmann::json::object(); }
  [[nodiscard]] Traits traits() const override { return {.draws = false, .geometry = true, .masks = true}; }
  [[nodiscard]] nlohmann::json describe(const Step&) const override { return {}; }
  [[nodiscard]] std::optional<DeviceShare> device_share() const override { return DeviceShare{}; }
  [[nodiscard]] std::string resident_obstacle(std::int32_t) const override { return {}; }
};

}  // namespace

std::string Op::check(ChainState&) const {
  return {};
}

std::string Op::warning() const {
  return {};
}

void Op::add_to(Values&) const {}

decode::Decoded<void> Op::draw(DrawKey, decode::ImageSize&, Step&) const {
  return {};
}

nlohmann::json Op::describe(const Step&) const {
  return {{"op", name()}};
}

void Op::erase(const Step&, const PixelFormat&, Size, std::byte*) const {}

std::optional<DeviceShare> Op::device_share() const {
  return std::nullopt;
}

std::optional<Move> Op::move(Size&) const {
  return std::nullopt;
}

std::string Op::resident_obstacle(std::int32_t) const {
  return fmt::format(
      "with `residence: gpu` the device only crops, flips, rotates by 90 degrees and normalizes: use "
      "`device: gpu` "
      "instead{}, or leave `residence` out",
      device_share() ? "" : ", with which the server computes this transform");
}

const Transform& skipped() {
  static const Transform one = std::make_shared<const Skipped>();
  return one;
}

bool is_skipped(const Transform& transform) {
  return transform == skipped();
}

decode::Decoded<void> resize_to(std::int64_t height, std::int64_t width, Interpolation interpolation,
                                decode::ImageSize& size, Step& step) {
  if (height < 1 || width < 1) {
    return decode::bad(BadReason::kUnsupported,
                       fmt::format("resize would make {} x {} pixels from {} x {} (width x height)", width,
                                   height, size.width, size.height));
  }
  if (width > kLargestResize || height > kLargestResize) {
    return decode::bad(BadReason::kTooLarge, fmt::format("resize would make {} x {} pixels", width, height));
  }
  step.kind = Step::Kind::kResize;
  step.size = {static_cast<std::int32_t>(height), static_cast<std::int32_t>(width)};
  step.interpolation = interpolation;
  size = {step.size.width, step.size.height};
  return {};
}

}  // namespace headrace::server::transform
