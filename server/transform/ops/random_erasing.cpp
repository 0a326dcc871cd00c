// v2.RandomErasing(p, scale, ratio, value), in the output after normalize, so values are in the output's
// units.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "server/transform/kernels/exact_math.h"
#include "server/transform/kernels/normal_quantile.h"
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct Written {
  std::vector<double> value{0};  ///< one for all channels, or one per channel
  bool noise = false;            ///< instead: each value is drawn from the standard normal distribution
};

described::Codec<Written> written() {
  using described::Json;
  const auto number = described::number();
  const auto each = described::expecting("a list of numbers, one per channel", described::list(number, 1, 3));
  const auto noise =
      described::expecting("random (standard normal)", described::word<bool>({{"random", true}}));
  return {{{"anyOf", {number.schema, each.schema, noise.schema}}},
          [each](const Json& value, const described::Reading& reading) -> Written {
            if (value.is_string()) return {{0}, true};
            if (value.is_array()) return {each.read(value, reading), false};
            return {{value.get<double>()}, false};
          },
          [](const Written& written) { return written.noise ? Json("random") : Json(written.value); }};
}

struct RandomErasing : DescribedOp<RandomErasing> {
  double p = 0.5;
  Bounds scale{0.02, 0.33};
  Bounds ratio{0.3, 3.3};
  Written with;

  static described::Description<RandomErasing> description() {
    using Self = RandomErasing;
    return {"random_erasing",
            "A rectangle of the output, after normalize: values are in the output's units.",
            {described::key("p", &Self::p, fraction(), "Probability."),
             described::key("scale", &Self::scale, range(0, 1, "[smallest, largest], from 0 to 1"),
                            "Fraction of the image's area."),
             described::key("ratio", &Self::ratio, range(), "Height to width."),
             described::key("value", &Self::with, written(),
                            "A number, one per channel, or random: standard normal.")}};
  }

  [[nodiscard]] Traits traits() const override { return {.stage = Stage::kErase}; }
  std::string check(ChainState& state) const override {
    if (auto wrong = check_range("random_erasing", "scale", scale, 0, 1, "[0, 1]"); !wrong.empty())
      return wrong;
    if (auto wrong = check_range("random_erasing", "ratio", ratio, 0.001, 1000, "[0.001, 1000]");
        !wrong.empty())
      return wrong;
    if (with.noise)
      return state.dtype == DType::kUInt8
                 ? "random_erasing: value random needs a float output: uint8 holds no negative numbers"
                 : "";
    if (with.value.size() != 1 && with.value.size() != state.channels)
      return fmt::format("random_erasing: {} values for {} channels: give one, or one per channel",
                         with.value.size(), state.channels);
    for (const double value : with.value) {
      if (!std::isfinite(static_cast<float>(value)))
        return fmt::format("random_erasing: value {} is not a finite number", value);
      if (state.dtype == DType::kUInt8 && !(value >= 0 && value <= 255 && value == std::floor(value)))
        return fmt::format("random_erasing: value {}: uint8 output holds whole numbers from 0 to 255", value);
    }
    return {};
  }
  void add_to(Values& values) const override {
    values.erased = with.value;
    values.noise = values.noise || with.noise;
    ++values.erasings;
  }
  decode::Decoded<void> draw(DrawKey key, decode::ImageSize& size, Step& step) const override {
    auto random = draws_of(key, step);
    if (!random.bernoulli(p)) return {};
    const double area = static_cast<double>(size.width) * size.height;
    const double log_min = exact_log(ratio.low), log_max = exact_log(ratio.high);
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double target = area * random.uniform(scale.low, scale.high);
      const double aspect = exact_exp(random.uniform(log_min, log_max));
      const double height = round_half_even(std::sqrt(target * aspect));
      const double width = round_half_even(std::sqrt(target / aspect));
      if (!(height < size.height && width < size.width)) continue;
      step.kind = Step::Kind::kErase;
      step.crop.height = static_cast<std::int32_t>(height);
      step.crop.width = static_cast<std::int32_t>(width);
      const auto within = [&](std::int32_t room) {
        return static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(room) + 1));
      };
      step.crop.top = within(size.height - step.crop.height);
      step.crop.left = within(size.width - step.crop.width);
      const std::uint64_t high = random.next_u32();
      step.noise = high << 32 | random.next_u32();
      return {};
    }
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    const bool applied = step.kind == Step::Kind::kErase;
    nlohmann::json out = {{"op", "random_erasing"}, {"applied", applied}};
    if (applied)
      out.update({{"top", step.crop.top},
                  {"left", step.crop.left},
                  {"height", step.crop.height},
                  {"width", step.crop.width},
                  {"noise", step.noise}});
    return out;
  }
  /// Random values are drawn in the order of torchvision's tensor (channel, row, column), keyed by
  /// step.noise.
  void erase(const Step& step, const PixelFormat& format, Size size, std::byte* row) const override {
    const auto& [value, noise] = with;
    const std::size_t element = size_of(format.dtype);
    const auto channels = static_cast<std::size_t>(format.channels);
    const auto width = static_cast<std::size_t>(size.width), height = static_cast<std::size_t>(size.height);
    const bool planar = format.layout == PixelLayout::kNchw;
    const std::size_t pixel = planar ? element : element * channels;
    const std::size_t channel = planar ? element * width * height : element;
    sampler::Draws random(step.noise, 0, 0, 0);
    const auto bits = [&](double number) {
      return format.dtype == DType::kUInt8 ? static_cast<std::uint32_t>(number)
                                           : bits_of(static_cast<float>(number), format.dtype);
    };
    for (std::size_t c = 0; c < channels; ++c) {
      std::uint32_t written = noise ? 0 : bits(value[c % value.size()]);
      for (std::int32_t y = 0; y < step.crop.height; ++y) {
        const std::size_t first =
            static_cast<std::size_t>(step.crop.top + y) * width + static_cast<std::size_t>(step.crop.left);
        std::byte* at = row + c * channel + first * pixel;
        for (std::int32_t x = 0; x < step.crop.width; ++x, at += pixel) {
          if (noise) written = bits(normal_of(random.next_u32()));
          std::memcpy(at, &written, element);  // little-endian, like the whole row
        }
      }
    }
  }
  [[nodiscard]] std::optional<DeviceShare> device_share() const override { return DeviceShare{}; }
  [[nodiscard]] std::string resident_obstacle(std::int32_t channels) const override {
    return with.noise ? "no device draws `value: random`: leave `residence` out"
                      : Op::resident_obstacle(channels);
  }
};

}  // namespace

namespace ops {
OpType random_erasing() {
  return op_type<RandomErasing>();
}
}  // namespace ops

}  // namespace headrace::server::transform
