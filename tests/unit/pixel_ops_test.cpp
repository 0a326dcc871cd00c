// Compares the color kernels with their scalar reference, which follows libImaging. tests/pixels compares
// with libImaging itself.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "clientlib/gpu/rows/colors.h"
#include "server/decode/decoder.h"
#include "server/transform/kernels/pixel_ops.h"
#include "server/transform/kernels/row_kernels.h"
#include "tests/every_target.h"

namespace headrace::server::transform {
namespace {

using testing::on_every_target;

using Kind = PointOp::Kind;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kColors = std::size_t{1} << 24;

// All 2^24 triples, with a row's padding.
Bytes all_triples() {
  Bytes all(3 * kColors + decode::kRowSlack);
  for (std::size_t i = 0; i < kColors; ++i)
    for (std::size_t c = 0; c < 3; ++c) all[3 * i + c] = static_cast<std::uint8_t>(i >> (8 * c));
  return all;
}

std::size_t first_difference(const Bytes& a, const Bytes& b, std::size_t bytes) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(bytes), b.begin()).first - a.begin());
}

TEST(PixelOps, GiveEveryColorWhatTheScalarTwinGivesIt) {
  const Bytes in = all_triples();
  Bytes want(in.size()), got(in.size());
  for (const PointOp& op :
       {PointOp{.kind = Kind::kHue, .shift = 77}, {.kind = Kind::kBlendGray, .factor = 0.637F}}) {
    const std::size_t count = op.kind == Kind::kHue ? kColors : kColors / 8;
    const std::uint64_t sum = scalar::apply_ops({&op, 1}, in.data(), count, want.data(), true);
    on_every_target([&] {
      EXPECT_EQ(apply_ops({&op, 1}, in.data(), count, got.data(), true), sum);
      EXPECT_EQ(first_difference(got, want, 3 * count), 3 * count)
          << "kind " << static_cast<int>(op.kind) << " factor " << op.factor << " shift " << int{op.shift};
    });
  }
}

TEST(PixelOps, ShiftTheHueOfEveryColorOnTheDeviceAsTheScalarTwin) {
  const Bytes in = all_triples();
  Bytes want(in.size()), got(in.size());
  for (const int shift : {0, 1, 200}) {
    const PointOp op{.kind = Kind::kHue, .shift = static_cast<std::uint8_t>(shift)};
    scalar::apply_ops({&op, 1}, in.data(), kColors, want.data(), false);
    for (std::size_t i = 0; i < kColors; ++i) {
      const auto rgb = gpu::shift_hue(
          {gpu::lift(in[3 * i]), gpu::lift(in[3 * i + 1]), gpu::lift(in[3 * i + 2])}, op.shift);
      got[3 * i] = gpu::byte_of(rgb.r), got[3 * i + 1] = gpu::byte_of(rgb.g),
              got[3 * i + 2] = gpu::byte_of(rgb.b);
    }
    EXPECT_EQ(first_difference(got, want, 3 * kColors), 3 * kColors) << "shift " << shift;
  }
}

TEST(PixelOps, GiveTheGrayOfEveryColorOnTheDeviceAsTheScalarTwin) {
  const Bytes in = all_triples();
  for (std::size_t i = 0; i < kColors; ++i) {
    const auto* const rgb = &in[3 * i];
    const float gray = gpu::gray_of({gpu::lift(rgb[0]), gpu::lift(rgb[1]), gpu::lift(rgb[2])});
    ASSERT_EQ(gpu::byte_of(gray), pixels::gray_of(rgb[0], rgb[1], rgb[2])) << i;
    ASSERT_EQ(gray, gpu::lift(gpu::byte_of(gray))) << i;
  }
}

TEST(PixelOps, ShiftHueByAnythingAsTheScalarTwin) {
  std::mt19937 random(7);
  constexpr std::size_t kWidth = 1000;
  Bytes in(3 * kWidth + decode::kRowSlack), want(3 * kWidth + kWriteSlack), got = want;
  on_every_target([&] {
    for (int shift = 0; shift < 256; ++shift) {
      for (auto& byte : in) byte = static_cast<std::uint8_t>(random() % 4 == 0 ? 255 : random());
      const PointOp op{.kind = Kind::kHue, .shift = static_cast<std::uint8_t>(shift)};
      scalar::apply_ops({&op, 1}, in.data(), kWidth, want.data(), false);
      apply_ops({&op, 1}, in.data(), kWidth, got.data(), false);
      ASSERT_TRUE(std::equal(want.begin(), want.begin() + 3 * kWidth, got.begin())) << shift;
    }
  });
}

TEST(PixelOps, BlendWithEveryConstantAsTheScalarTwin) {
  Bytes in(3 * 256 + decode::kRowSlack), want(3 * 256 + kWriteSlack), got = want;
  for (std::size_t i = 0; i < 3 * 256; ++i) in[i] = static_cast<std::uint8_t>(i / 3);
  on_every_target([&] {
    std::mt19937 random(8);
    std::uniform_real_distribution<float> below_two(0, 2);
    for (int constant = 0; constant < 256; ++constant)
      for (const float factor : {0.0F, 1.0F, below_two(random), below_two(random), 40 * below_two(random)}) {
        const PointOp op{.factor = factor, .constant = static_cast<std::uint8_t>(constant)};
        scalar::apply_ops({&op, 1}, in.data(), 256, want.data(), false);
        apply_ops({&op, 1}, in.data(), 256, got.data(), false);
        ASSERT_TRUE(std::equal(want.begin(), want.begin() + 3 * 256, got.begin()))
            << constant << " " << factor;
      }
  });
}

TEST(PixelOps, WorkOnRowsOfAnyWidthInPlaceAndWithinTheSlack) {
  const std::vector<PointOp> ops{{.factor = 1.3F, .constant = 99},
                                 {.kind = Kind::kHue, .shift = 30},
                                 {.kind = Kind::kBlendGray, .factor = 0.4F}};
  on_every_target([&] {
    std::mt19937 random(9);
    for (std::size_t width = 1; width < 100; ++width) {
      Bytes row(3 * width + decode::kRowSlack), guarded(3 * width + kWriteSlack + 1, 0x5A);
      for (auto& byte : row) byte = static_cast<std::uint8_t>(random());
      Bytes want = row;
      const std::uint64_t sum = scalar::apply_ops(ops, row.data(), width, want.data(), true);
      EXPECT_EQ(apply_ops(ops, row.data(), width, guarded.data(), true), sum) << width;
      EXPECT_EQ(guarded.back(), 0x5A);
      EXPECT_EQ(apply_ops(ops, row.data(), width, row.data(), true), sum);
      EXPECT_TRUE(
          std::equal(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(3 * width), row.begin()));
      EXPECT_TRUE(
          std::equal(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(3 * width), guarded.begin()));
    }
  });
}

TEST(PixelOps, LookBytesUpAsTheScalarTwin) {
  std::mt19937 random(10);
  ByteTable table;
  for (auto& channel : table)
    for (auto& entry : channel) entry = static_cast<float>(random() % 256);
  const PointOp op{.kind = Kind::kTable, .table = &table};
  Bytes in(3 * 256 + decode::kRowSlack), want(3 * 256 + kWriteSlack), got = want;
  for (std::size_t i = 0; i < 3 * 256; ++i) in[i] = static_cast<std::uint8_t>(i / 3);
  scalar::apply_ops({&op, 1}, in.data(), 256, want.data(), false);
  on_every_target([&] {
    apply_ops({&op, 1}, in.data(), 256, got.data(), false);
    EXPECT_TRUE(std::equal(want.begin(), want.begin() + 3 * 256, got.begin()));
  });
}

TEST(WeightedSum, IsTheSameToTheLastBitOnEveryInstructionSet) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> any(-1, 300);
  for (const std::size_t size : {1U, 15U, 16U, 64U, 65U, 700U})
    for (const std::size_t count : {1U, 3U, 23U}) {
      std::vector<float> values(count * 3 + size + 16), weights(count), want(size + 16), got(size + 16);
      for (auto& value : values) value = any(random);
      for (auto& weight : weights) weight = any(random) / 300;
      std::vector<const float*> rows;
      for (std::size_t k = 0; k < count; ++k) rows.push_back(values.data() + 3 * k);
      scalar::weighted_sum(rows.data(), weights.data(), count, size, want.data());
      on_every_target([&] {
        weighted_sum(rows.data(), weights.data(), count, size, got.data());
        EXPECT_TRUE(std::equal(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(size), got.begin()));
      });
    }
}

TEST(PixelOps, SumLongWhiteRowsWithoutRounding) {
  constexpr std::size_t kWidth = 1'000'003;
  Bytes row(3 * kWidth + decode::kRowSlack, 255);
  on_every_target([&] { EXPECT_EQ(apply_ops({}, row.data(), kWidth, row.data(), true), 255U * kWidth); });
}

}  // namespace
}  // namespace headrace::server::transform
