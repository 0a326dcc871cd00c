#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <random>

#include "server/transform/kernels/coefficients.h"
#include "server/transform/kernels/exact_math.h"
#include "server/transform/kernels/row_kernels.h"
#include "tests/every_target.h"

namespace headrace::server::transform {
namespace {

using testing::on_every_target;

struct Lengths {
  std::int32_t in, out;
};

TEST(ResampleRows, IsTheSameOnEveryInstructionSetAsTheScalarTwin) {
  std::mt19937 random(3);
  on_every_target([&] {
    for (const auto interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
      for (const auto [in, out] :
           {Lengths{1, 1}, {1, 40}, {5, 3}, {300, 224}, {37, 224}, {224, 17}, {2000, 9}, {16, 16}}) {
        const Axis axis{in, out, out / 4, out - out / 4, interpolation};
        const auto columns = coefficients_of(axis);
        const auto range = columns.inputs;
        const auto stride = static_cast<std::size_t>(range.end - range.begin) * 3 + decode::kRowSlack;
        std::vector<std::uint8_t> image(stride * 16), scratch;
        for (auto& p : image) p = static_cast<std::uint8_t>(random() % 5 == 0 ? 255 : random());
        const std::size_t out_stride = static_cast<std::size_t>(axis.outputs) * 3 + kWriteSlack;
        std::vector<std::uint8_t> got(out_stride * 16), want(out_stride * 16);
        for (const bool mirrored : {false, true}) {
          HorizontalJob job{&columns, mirrored, range.begin, {}, {}};
          for (std::size_t i = 0; i < 16; ++i) job.in[i] = image.data() + i * stride;
          for (std::size_t i = 0; i < 16; ++i) job.out[i] = want.data() + i * out_stride;
          scalar::resample_rows(job);
          for (std::size_t i = 0; i < 16; ++i) job.out[i] = got.data() + i * out_stride;
          resample_rows(job, scratch);
          for (std::size_t i = 0; i < 16; ++i) {
            for (std::size_t x = 0; x < static_cast<std::size_t>(axis.outputs) * 3; ++x) {
              ASSERT_EQ(got[i * out_stride + x], want[i * out_stride + x])
                  << in << " to " << out << (mirrored ? " mirrored" : "") << " row " << i << " byte " << x;
            }
          }
        }
      }
    }
  });
}

TEST(ResampleColumn, IsTheSameOnEveryInstructionSetAsTheScalarTwin) {
  std::mt19937 random(4);
  on_every_target([&] {
    for (const auto interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
      for (const auto [in, out] : {Lengths{1, 40}, {5, 3}, {300, 224}, {500, 9}}) {
        const auto rows = coefficients_of({in, out, 0, out, interpolation});
        for (const std::size_t bytes : {3U, 63U, 64U, 65U, 672U}) {
          const std::size_t stride = bytes + decode::kRowSlack;
          std::vector<std::uint8_t> image(stride * static_cast<std::size_t>(in));
          for (auto& p : image) p = static_cast<std::uint8_t>(random() % 3 == 0 ? 255 : random());
          std::vector<std::uint8_t> got(bytes + kWriteSlack), want(bytes + kWriteSlack);
          for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i) {
            const auto* from = image.data() + static_cast<std::size_t>(rows.first[i]) * stride;
            const auto* weights = rows.weights.data() + i * static_cast<std::size_t>(rows.taps);
            resample_column(from, static_cast<std::ptrdiff_t>(stride), weights, rows.count[i], bytes,
                            got.data());
            scalar::resample_column(from, static_cast<std::ptrdiff_t>(stride), weights, rows.count[i], bytes,
                                    want.data());
            ASSERT_TRUE(
                std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(bytes), want.begin()))
                << in << " to " << out << " output " << i << ", " << bytes << " bytes";
          }
        }
      }
    }
  });
}

TEST(WritePixels, GivesTheExactValueOfEveryByteInEveryTypeLayoutAndInstructionSet) {
  std::mt19937 random(5);
  on_every_target([&] {
    for (const auto dtype : {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
      for (const auto layout : {PixelLayout::kNchw, PixelLayout::kNhwc}) {
        for (int normalize = 0; normalize < 3; ++normalize) {
          const auto format =
              normalize == 0 ? make_pixel_format({dtype, layout}, {}, {})
              : normalize == 1
                  ? make_pixel_format({dtype, layout}, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})
                  : make_pixel_format({dtype, layout}, {0.0, 1e-7, 0.5}, {1e4, 3.1, 1e-4});
          for (const std::int32_t width : {1, 15, 16, 17, 256, 300}) {
            std::vector<std::uint8_t> row(static_cast<std::size_t>(width) * 3 + decode::kRowSlack);
            for (auto& p : row) p = static_cast<std::uint8_t>(random());
            if (width >= 256) {
              for (std::size_t i = 0; i < 768; ++i) row[i] = static_cast<std::uint8_t>(i / 3);
            }
            const std::size_t plane = static_cast<std::size_t>(width) * size_of(dtype);
            // Also misaligned by one byte, because rows need no alignment; with a guard after it, which must
            // not be written.
            for (const std::size_t off : {0U, 1U}) {
              const auto written = [&](auto kernel, auto... streamed) {
                const auto out = hwy::AllocateAligned<std::byte>(off + 3 * plane + 1);
                std::fill_n(out.get(), off + 3 * plane + 1, std::byte{0x5A});
                std::byte* const first = out.get() + off;
                kernel(format, row.data(), width, {first, first + plane, first + 2 * plane}, streamed...);
                return std::vector<std::byte>(out.get(), first + 3 * plane + 1);
              };
              const auto want = written(scalar::write_pixels);
              for (const bool streamed : {false, true})
                ASSERT_EQ(written(write_pixels, streamed), want)
                    << name_of(dtype) << " layout " << static_cast<int>(layout) << " width " << width
                    << " way " << static_cast<int>(format.method) << (streamed ? " streamed" : "");
            }
          }
        }
      }
    }
  });
}

TEST(PixelFormat, RoundsHalvesToNearestEvenWithSubnormalsAndInfinity) {
  // value = byte / 255 * scale, through std = 1 / scale.
  const auto half = [](double std, std::size_t byte) {
    return make_pixel_format({DType::kFloat16, PixelLayout::kNchw}, {0, 0, 0}, {std, std, std})
        .value[0][byte];
  };
  EXPECT_EQ(half(1.0, 0), 0x0000U);
  EXPECT_EQ(half(1.0, 255), 0x3C00U);
  EXPECT_EQ(half(1.0 / 65504.0, 255), 0x7BFFU);
  const auto above =
      make_pixel_format({DType::kFloat16, PixelLayout::kNchw}, {-65519, -65518, 65519}, {1, 1, 1});
  EXPECT_EQ(above.value[0][255], 0x7C00U) << "65520, halfway to the next, is infinite";
  EXPECT_EQ(above.value[1][255], 0x7BFFU);
  EXPECT_EQ(above.value[2][0], 0xFBFFU);
  EXPECT_EQ(half(16777216.0, 255), 0x0001U) << "2^-24, the smallest";
  EXPECT_EQ(half(33554432.0, 255), 0x0000U) << "2^-25 is halfway to zero, which is even";
  EXPECT_EQ(half(16777216.0 / 3, 255), 0x0003U);
}

TEST(ExactMath, AgreesWithTheLibraryToAFewUnitsInTheLastPlace) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 20'000; ++i) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    const double x = (u - 0.5) * 40;
    EXPECT_NEAR(exact_exp(x) / std::exp(x), 1.0, 2e-15) << x;
    const double y = std::exp(x);
    EXPECT_NEAR(exact_log(y), std::log(y), 4e-16 * std::max(1.0, std::abs(x))) << y;
  }
  EXPECT_EQ(exact_log(1.0), 0.0);
  EXPECT_EQ(exact_exp(0.0), 1.0);
}

TEST(ExactMath, RoundsHalvesToEvenAsPythonDoes) {
  for (const auto& [x, rounded] : {std::pair{0.5, 0.0},
                                   {1.5, 2.0},
                                   {2.5, 2.0},
                                   {3.49, 3.0},
                                   {-0.5, 0.0},
                                   {-1.5, -2.0},
                                   {7.0, 7.0},
                                   {0.49999999999999994, 0.0}}) {
    EXPECT_EQ(round_half_even(x), rounded) << x;
  }
}

TEST(Coefficients, OfEveryOutputSumToOneAndStayWithinTheInput) {
  for (const auto interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
    for (std::int32_t in = 1; in < 400; in += 13) {
      const auto table = coefficients_of({in, 224, 0, 224, interpolation});
      for (std::size_t i = 0; i < 224; ++i) {
        std::int64_t sum = 0;
        for (std::int32_t k = 0; k < table.count[i]; ++k) {
          sum += table.weights[i * static_cast<std::size_t>(table.taps) + static_cast<std::size_t>(k)];
        }
        EXPECT_NEAR(static_cast<double>(sum), 1 << kPrecisionBits, table.taps) << in << " output " << i;
        EXPECT_GE(table.first[i], 0);
        EXPECT_LE(table.first[i] + table.count[i], in);
        EXPECT_GT(table.count[i], 0);
      }
    }
  }
}

TEST(CoefficientCache, GivesEachAxisItsOwnTable) {
  CoefficientCache cache;
  for (int round = 0; round < 2; ++round) {
    for (std::int32_t in = 1; in < 1500; in += 7) {
      const Axis axis{in, 224, 0, 224, Interpolation::kBilinear};
      const auto cached = cache.get(axis);
      const auto fresh = coefficients_of(axis);
      ASSERT_EQ(cached->weights, fresh.weights) << in;
      ASSERT_EQ(cached->first, fresh.first) << in;
    }
  }
}

}  // namespace
}  // namespace headrace::server::transform
