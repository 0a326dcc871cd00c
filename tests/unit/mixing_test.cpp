#include "server/transform/mixing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "clientlib/pixels/halves.h"
#include "server/transform/kernels/mix_kernels.h"
#include "tests/every_target.h"

namespace headrace::server::transform {
namespace {

using pixels::bfloat_of;
using pixels::float_of_bfloat;
using pixels::float_of_half;
using pixels::half_of;
using testing::on_every_target;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

std::vector<std::byte> random_values(DType dtype, std::size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> values(-3, 3);
  std::vector<std::byte> out(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const float value = random() % 8 == 0 ? values(random) * 1e-5F : values(random);
    if (dtype == DType::kFloat32) {
      std::memcpy(out.data() + 4 * i, &value, 4);
    } else {
      const std::uint16_t half = dtype == DType::kFloat16 ? half_of(value) : bfloat_of(value);
      std::memcpy(out.data() + 2 * i, &half, 2);
    }
  }
  return out;
}

TEST(Halves, GoThereAndBackForEveryPatternThatIsANumber) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((half & 0x7FFFU) <= 0x7C00U) {
      ASSERT_EQ(half_of(float_of_half(half)), half);
    }
    if ((half & 0x7FFFU) <= 0x7F80U) {
      ASSERT_EQ(bfloat_of(float_of_bfloat(half)), half);
    }
  }
  EXPECT_EQ(float_of_half(0x3C00), 1.0F);
  EXPECT_EQ(float_of_half(0x0001), 0x1p-24F);
  EXPECT_EQ(float_of_half(0xFBFF), -65504.0F);
}

TEST(MixValues, AreTheSameOnEveryInstructionSetAsTheScalarTwin) {
  std::mt19937 random(1);
  on_every_target([&] {
    for (const DType dtype : kFloats) {
      for (const std::size_t count : {1U, 7U, 16U, 33U, 672U}) {
        for (const double lambda : {0.0, 1.0, 0.3, 0.77777}) {
          auto got = random_values(dtype, count, random);
          const auto partner = random_values(dtype, count, random);
          auto want = got;
          scalar::mix_values(dtype, lambda, count, want.data(), partner.data());
          mix_values(dtype, lambda, count, got.data(), partner.data());
          ASSERT_EQ(got, want) << count << " values, lambda " << lambda;
        }
      }
    }
  });
}

TEST(MixValues, AreTheSumOfTwoRoundedProducts) {
  float own = 0.1F;
  const float partner = -2.7F;
  const float want = partner * static_cast<float>(1 - 0.3) + 0.1F * 0.3F;
  mix_values(DType::kFloat32, 0.3, 1, reinterpret_cast<std::byte*>(&own),
             reinterpret_cast<const std::byte*>(&partner));
  EXPECT_EQ(own, want);
}

/// The regularized incomplete beta function by the midpoint rule in t = sin^2(u): smooth for all alpha > 0.5,
/// and for smaller ones after the substitution t = s^(1/alpha) on each half.
double beta_cdf(double alpha, double x) {
  if (x > 0.5) return 1 - beta_cdf(alpha, 1 - x);
  // The integral of t^(a-1) (1-t)^(a-1) over [0, x], with s = t^a: (1 - s^(1/a))^(a-1) / a over [0, x^a].
  const auto integral = [alpha](double to) {
    constexpr int kSteps = 1000;
    const double end = std::pow(to, alpha);
    double sum = 0;
    for (int i = 0; i < kSteps; ++i)
      sum += std::pow(1 - std::pow((i + 0.5) * end / kSteps, 1 / alpha), alpha - 1);
    return sum * end / kSteps / alpha;
  };
  return integral(x) / (2 * integral(0.5));
}

TEST(DrawBeta, FollowsTheDistributionByKolmogorovAndSmirnov) {
  constexpr int kDraws = 100'000;
  for (const double alpha : {0.1, 0.2, 0.8, 1.0, 1.5, 4.0}) {
    std::vector<double> drawn(kDraws);
    for (int i = 0; i < kDraws; ++i)
      drawn[static_cast<std::size_t>(i)] = draw_beta(alpha, {11, 3, static_cast<std::uint64_t>(i)});
    std::sort(drawn.begin(), drawn.end());
    ASSERT_GE(drawn.front(), 0);
    ASSERT_LE(drawn.back(), 1);
    double distance = 0;
    for (int i = 0; i < kDraws; i += 100) {
      // With a small alpha, one in a hundred draws is closer to 1 than a double can represent.
      if (drawn[static_cast<std::size_t>(i)] == 1) break;
      const double at = beta_cdf(alpha, drawn[static_cast<std::size_t>(i)]);
      distance = std::max(distance, std::abs(at - static_cast<double>(i) / kDraws));
    }
    // 1.95 / sqrt(n) is exceeded with probability 0.001; the draws are the same in each run.
    EXPECT_LT(distance, 1.95 / std::sqrt(kDraws) + 1e-3) << "alpha " << alpha;
  }
}

TEST(DrawBeta, OfTheSmallestAlphaIsANumber) {
  for (std::uint64_t position = 0; position < 20'000; ++position) {
    for (const double alpha : {0.001, 1e-310}) {
      const double drawn = draw_beta(alpha, {1, 0, position});
      ASSERT_TRUE(drawn >= 0 && drawn <= 1) << alpha;
    }
  }
}

TEST(Partners, AreEachOthersButForTheLastOfAnOddEpoch) {
  for (const std::uint64_t size : {1U, 2U, 7U, 8U}) {
    for (std::uint64_t p = 0; p < size; ++p) {
      const auto partner = partner_of(p, size);
      ASSERT_LT(partner, size);
      if (size % 2 == 0 || p + 1 < size) {
        EXPECT_EQ(partner_of(partner, size), p);
        EXPECT_NE(partner, p);
      }
    }
  }
  EXPECT_EQ(partner_of(6, 7), 0U);
}

TEST(DrawMixing, CutsTheBoxAtTheEdgesAndCountsWhatIsLeft) {
  const Size size{20, 30};
  int mixups = 0, cutmixes = 0, none = 0;
  for (std::uint64_t p = 0; p < 20'000; ++p) {
    const Mixing how = draw_mixing({.mixup_alpha = 1, .cutmix_alpha = 1, .p = 0.75}, {5, 0, p}, size);
    none += how.kind == Mixing::Kind::kNone ? 1 : 0;
    mixups += how.kind == Mixing::Kind::kMixup ? 1 : 0;
    if (how.kind != Mixing::Kind::kCutmix) continue;
    ++cutmixes;
    const auto& box = how.box;
    ASSERT_TRUE(box.left >= 0 && box.top >= 0 && box.width >= 0 && box.height >= 0);
    ASSERT_TRUE(box.left + box.width <= size.width && box.top + box.height <= size.height);
    ASSERT_DOUBLE_EQ(how.lambda, 1 - box.width * box.height / 600.0);
  }
  EXPECT_NEAR(none, 5000, 250);
  EXPECT_NEAR(mixups, 7500, 300);
  EXPECT_NEAR(cutmixes, 7500, 300);
}

TEST(ImageMixer, MixesAPairAsTwoSinglesWouldFromCopies) {
  std::mt19937 random(2);
  for (const PixelLayout layout : {PixelLayout::kNchw, PixelLayout::kNhwc}) {
    const bool planar = layout == PixelLayout::kNchw;
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kUInt8}) {
      const FieldSpec field{
          "image", dtype, FieldKind::kDense,
          planar ? std::vector<std::int64_t>{3, 9, 14} : std::vector<std::int64_t>{9, 14, 3}, 0};
      MixConfig config{.cutmix_alpha = 1.0};
      if (dtype != DType::kUInt8) config.mixup_alpha = 0.4;
      const auto mixer = ImageMixer::make(config, field, layout);
      ASSERT_TRUE(mixer);
      const std::size_t count = 3 * 9 * 14;
      for (std::uint64_t p = 0; p < 60; p += 2) {
        auto a = dtype == DType::kUInt8 ? std::vector<std::byte>(count, std::byte{1})
                                        : random_values(dtype, count, random);
        auto b = dtype == DType::kUInt8 ? std::vector<std::byte>(count, std::byte{2})
                                        : random_values(dtype, count, random);
        const auto a_before = a, b_before = b;
        auto a_want = a, b_want = b;
        const Mixing how = draw_mixing(config, {1, 0, p}, mixer->size());
        const Mixing others = draw_mixing(config, {1, 0, p + 1}, mixer->size());
        mixer->mix(how, a_want.data(), b_before.data());
        mixer->mix(others, b_want.data(), a_before.data());
        mixer->mix_pair(how, a.data(), others, b.data());
        ASSERT_EQ(a, a_want);
        ASSERT_EQ(b, b_want);
        if (how.kind != Mixing::Kind::kCutmix || dtype != DType::kUInt8) continue;
        // Inside the box the partner's pixel, outside its own.
        for (std::size_t i = 0; i < count; ++i) {
          const auto pixel = planar ? i % (9 * 14) : i / 3;
          const auto y = static_cast<std::int32_t>(pixel / 14), x = static_cast<std::int32_t>(pixel % 14);
          const bool inside = y >= how.box.top && y < how.box.top + how.box.height && x >= how.box.left &&
                              x < how.box.left + how.box.width;
          ASSERT_EQ(a[i], inside ? std::byte{2} : std::byte{1}) << x << ", " << y;
        }
      }
    }
  }
}

TEST(ImageMixer, RefusesFractionsOfBytes) {
  const FieldSpec field{"image", DType::kUInt8, FieldKind::kDense, {3, 8, 8}, 0};
  const auto refused = ImageMixer::make({.mixup_alpha = 1.0}, field, PixelLayout::kNchw);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConfigInvalid);
  EXPECT_TRUE(ImageMixer::make({.cutmix_alpha = 1.0}, field, PixelLayout::kNchw));
}

}  // namespace
}  // namespace headrace::server::transform
