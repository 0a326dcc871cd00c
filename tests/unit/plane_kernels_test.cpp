// Compares the SIMD plane kernels with their scalar references on every instruction set, and checks that they
// access no byte outside the input and the output.
#include "server/transform/kernels/plane_kernels.h"

#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/every_target.h"

namespace headrace::server::transform {
namespace {

using testing::on_every_target;

/// Exactly as many bytes on the heap as requested, so that sanitizers notice reads beyond them.
class Bytes {
 public:
  explicit Bytes(std::size_t size) : size_(size), data_(std::make_unique<std::uint8_t[]>(size)) {}
  Bytes(std::size_t size, std::mt19937& random) : Bytes(size) {
    for (std::size_t i = 0; i < size; ++i) data_[i] = static_cast<std::uint8_t>(random());
  }
  [[nodiscard]] std::uint8_t* data() const { return data_.get(); }
  [[nodiscard]] std::vector<std::uint8_t> all() const { return {data(), data() + size_}; }

 private:
  std::size_t size_;
  std::unique_ptr<std::uint8_t[]> data_;
};

constexpr std::size_t kGuard = 64;

/// The `size` bytes that `write` fills, in aligned memory like a slot's. The guard bytes after them must not
/// change.
template <class Write>
std::vector<std::uint8_t> made(std::size_t size, Write write) {
  const auto bytes = hwy::AllocateAligned<std::uint8_t>(size + kGuard);
  std::fill_n(bytes.get(), size + kGuard, std::uint8_t{0xA5});
  write(bytes.get());
  for (std::size_t i = size; i < size + kGuard; ++i) EXPECT_EQ(bytes[i], 0xA5) << "written beyond the end";
  return {bytes.get(), bytes.get() + size};
}

std::int32_t between(std::mt19937& random, std::int32_t low, std::int32_t high) {
  return std::uniform_int_distribution<std::int32_t>(low, high)(random);
}

/// A part of the plane, or all of it.
Strip strip_of(std::size_t whole, bool all, std::mt19937& random) {
  if (all) return {0, whole};
  const auto most = static_cast<std::int32_t>(whole);
  const auto first = static_cast<std::size_t>(between(random, 0, most - 1));
  return {first, static_cast<std::size_t>(between(random, 1, most - static_cast<std::int32_t>(first)))};
}

PixelView view_of(const Bytes& bytes, std::int32_t width, std::int32_t height, std::int32_t channels,
                  bool planar) {
  PixelView view{.at = bytes.data(), .width = width, .height = height};
  view.pixel = channels == 3 && !planar ? 3 : 1;
  view.row = width * view.pixel;
  view.plane = channels == 1 ? 0 : planar ? std::ptrdiff_t{width} * height : 1;
  return view;
}

TEST(CutPlanes, EqualsTheScalarReferenceOnEveryInstructionSet) {
  on_every_target([] {
    std::mt19937 random(11);
    for (int i = 0; i < 3000; ++i) {
      const std::int32_t largest = i % 3 == 0 ? 200 : 40;
      const std::int32_t width = between(random, 1, largest), height = between(random, 1, 40);
      const std::int32_t channels = i % 4 == 0 ? 1 : 3;
      const bool planar = i % 2 == 0;
      const Bytes pixels(static_cast<std::size_t>(width * height * channels), random);
      PlaneCut cut{.from = view_of(pixels, width, height, channels, planar)};
      cut.channels = channels == 1 && i % 8 == 0 ? 1 : i % 16 == 1 ? 1 : 3;
      cut.window = {between(random, -width - 3, width + 3), between(random, -height - 3, height + 3),
                    between(random, 1, 2 * width + 2), between(random, 1, 2 * height + 2)};
      cut.mode = static_cast<PaddingMode>(between(random, 0, 3));
      cut.fill = {7, 130, 255};
      cut.mirrored = random() % 2 == 0;
      cut.flipped = random() % 2 == 0;
      const Strip rows = strip_of(static_cast<std::size_t>(cut.window.height), i % 5 == 0, random);
      const std::size_t size = cut.channels * static_cast<std::size_t>(cut.window.width) * rows.count;
      const auto got = made(size, [&](std::uint8_t* out) { cut_planes(cut, rows, out); });
      const auto want = made(size, [&](std::uint8_t* out) { scalar::cut_planes(cut, rows, out); });
      ASSERT_EQ(got, want) << width << " x " << height << " x " << channels << (planar ? " planar" : "")
                           << ", window " << cut.window.left << " " << cut.window.top << " "
                           << cut.window.width << " " << cut.window.height << " mode "
                           << static_cast<int>(cut.mode) << (cut.mirrored ? " mirrored" : "") << ", rows "
                           << rows.first << " and " << rows.count;
    }
  });
}

TEST(CutPlanes, MirrorsAWindowInsideTheImage) {
  std::vector<std::uint8_t> pixels(4 * 5 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  const PlaneCut cut{
      .from = {.at = pixels.data(), .plane = 1, .row = 15, .pixel = 3, .width = 5, .height = 4},
      .window = {1, 2, 2, 1},
      .mirrored = true};
  std::vector<std::uint8_t> out(6);
  cut_planes(cut, {0, 1}, out.data());
  EXPECT_EQ(out, (std::vector<std::uint8_t>{36, 33, 37, 34, 38, 35}));
}

TEST(CutPlanes, StripsTogetherEqualTheWholeWindow) {
  std::mt19937 random(15);
  const Bytes pixels(std::size_t{300 * 90 * 3}, random);
  PlaneCut cut{.from = view_of(pixels, 300, 90, 3, false), .window = {-5, 7, 250, 90}};
  constexpr std::size_t kWidth = 250, kHeight = 90;
  on_every_target([&] {
    for (int i = 0; i < 16; ++i) {
      cut.flipped = i % 2 != 0;
      cut.mirrored = i / 2 % 2 != 0;
      cut.mode = static_cast<PaddingMode>(i / 4);
      std::vector<std::uint8_t> whole(3 * kWidth * kHeight), strips(whole.size());
      scalar::cut_planes(cut, {0, kHeight}, whole.data());
      for (std::size_t first = 0; first < kHeight; first += 16) {
        const std::size_t count = std::min<std::size_t>(16, kHeight - first);
        std::vector<std::uint8_t> strip(3 * kWidth * count);
        cut_planes(cut, {first, count}, strip.data());
        for (std::size_t c = 0; c < 3; ++c)
          std::copy_n(&strip[c * kWidth * count], kWidth * count, &strips[(c * kHeight + first) * kWidth]);
      }
      ASSERT_EQ(strips, whole) << i;
    }
  });
}

TEST(TransposePlane, EqualsTheScalarReferenceOnEveryInstructionSet) {
  on_every_target([] {
    std::mt19937 random(12);
    for (int i = 0; i < 600; ++i) {
      const auto height = static_cast<std::size_t>(between(random, 1, 70));
      const auto width = static_cast<std::size_t>(between(random, 1, 170));
      const Strip columns = strip_of(width, i % 3 == 0, random);
      const Bytes in(height * width, random);
      const auto transposed = [&](auto kernel) {
        return made(columns.count * height,
                    [&](std::uint8_t* out) { kernel(in.data(), height, width, columns, out); });
      };
      ASSERT_EQ(transposed(transpose_plane), transposed(scalar::transpose_plane))
          << height << " x " << width << ", columns " << columns.first << " and " << columns.count;
    }
  });
}

TEST(WritePlanes, EqualsTheScalarReferenceOnEveryInstructionSet) {
  on_every_target([] {
    std::mt19937 random(13);
    for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32})
      for (const PixelLayout layout : {PixelLayout::kNchw, PixelLayout::kNhwc})
        for (const std::int32_t channels : {1, 3})
          for (const bool normalized : {false, true}) {
            std::vector<double> mean, std;
            if (normalized) mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};
            const PixelFormat format = make_pixel_format({dtype, layout}, mean, std, channels);
            for (const std::size_t pixels :
                 {1U, 2U, 7U, 15U, 16U, 17U, 31U, 63U, 64U, 65U, 784U, 1024U, 5003U, 8192U}) {
              const std::size_t plane = pixels + static_cast<std::size_t>(between(random, 0, 5));
              const Bytes in(plane * static_cast<std::size_t>(channels - 1) + pixels, random);
              const bool planar = layout == PixelLayout::kNchw;
              const std::size_t between_planes =
                  planar ? static_cast<std::size_t>(between(random, 0, 70)) : 0;
              const std::size_t out_plane = pixels + between_planes;
              const std::size_t size =
                  (static_cast<std::size_t>(channels - 1) * out_plane + pixels) * size_of(dtype);
              const auto stride = static_cast<std::ptrdiff_t>(plane);
              const auto write = [&](auto kernel, auto... streamed) {
                return made(size, [&](std::uint8_t* out) {
                  kernel(format, in.data(), stride, pixels, reinterpret_cast<std::byte*>(out), out_plane,
                         streamed...);
                });
              };
              const auto want = write(scalar::write_planes);
              for (const bool streamed : {false, true})
                ASSERT_EQ(write(write_planes, streamed), want)
                    << name_of(dtype) << " " << channels << " channels, " << pixels << " pixels"
                    << (streamed ? ", streamed" : "");
            }
          }
  });
}

TEST(CopyStreamed, CopiesAtAnyAlignment) {
  on_every_target([] {
    std::mt19937 random(14);
    for (std::size_t size = 0; size < 400; ++size) {
      const auto from = static_cast<std::size_t>(between(random, 0, 63)),
                 to = static_cast<std::size_t>(between(random, 0, 63));
      const Bytes in(from + size, random);
      const auto copy = [&](auto kernel) {
        return made(to + size, [&](std::uint8_t* out) { kernel(in.data() + from, size, out + to); });
      };
      ASSERT_EQ(copy(copy_streamed), copy([](const std::uint8_t* source, std::size_t bytes,
                                             std::uint8_t* target) { std::memcpy(target, source, bytes); }))
          << size << " bytes from " << from << " to " << to;
    }
  });
}

}  // namespace
}  // namespace headrace::server::transform
