// Pixels that need no decoding: any region of any layout, without a copy if possible.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "server/decode/decoder.h"

namespace headrace::server::decode {
namespace {

struct Layout {
  friend void PrintTo(const Layout& one, std::ostream* out) {
    *out << one.channels << (one.planar ? " planar" : "");
  }
  std::int32_t channels;
  bool planar;
};

class RawPixels : public testing::TestWithParam<Layout> {
 protected:
  static constexpr std::int32_t kWidth = 53, kHeight = 47;

  RawPixels() : pixels_(std::make_unique<std::uint8_t[]>(size())) {
    std::mt19937 random(5);
    for (std::size_t i = 0; i < size(); ++i) pixels_[i] = static_cast<std::uint8_t>(random());
  }
  static std::size_t size() {
    return std::size_t{kWidth} * kHeight * static_cast<std::size_t>(GetParam().channels);
  }
  [[nodiscard]] ImageData image() const {
    return {{pixels_.get(), size()}, {kWidth, kHeight, GetParam().channels, GetParam().planar}};
  }
  [[nodiscard]] std::uint8_t value(std::int32_t y, std::int32_t x, std::int32_t c) const {
    const auto [channels, planar] = GetParam();
    if (channels == 1) c = 0;
    return pixels_[static_cast<std::size_t>(planar ? (c * kHeight + y) * kWidth + x
                                                   : (y * kWidth + x) * channels + c)];
  }

  std::unique_ptr<std::uint8_t[]> pixels_;  // exactly as long as it must be
  Decoder decoder_;
};

TEST_P(RawPixels, AreGivenOfAnyRegion) {
  std::mt19937 random(6);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 400; ++i) {
    Rect region{0, 0, 1 + below(kWidth), 1 + below(kHeight)};
    region.left = below(kWidth - region.width + 1);
    region.top = i % 3 == 0 ? kHeight - region.height : below(kHeight - region.height + 1);
    const bool keep = i % 2 == 0;
    ASSERT_TRUE(decoder_.open(image(), 1 << 20));
    ASSERT_TRUE(decoder_.begin(region, keep));
    const std::uint8_t* first = nullptr;
    for (std::int32_t done = 0; done < region.height;) {
      const auto rows = decoder_.next();
      ASSERT_TRUE(rows);
      if (done == 0) first = rows->data;
      if (keep) {
        ASSERT_EQ(rows->data, first + done * rows->stride);
      }
      for (std::int32_t y = 0; y < rows->count; ++y)
        for (std::int32_t x = 0; x < region.width; ++x)
          for (std::int32_t c = 0; c < 3; ++c)
            ASSERT_EQ(rows->data[y * rows->stride + 3 * x + c],
                      value(region.top + done + y, region.left + x, c));
      done += rows->count;
    }
  }
}

TEST_P(RawPixels, OfRgbAreNotCopied) {
  ASSERT_TRUE(decoder_.open(image(), 1 << 20));
  ASSERT_TRUE(decoder_.begin({3, 2, 40, 20}, true));
  const auto rows = decoder_.next();
  ASSERT_TRUE(rows);
  const bool there = rows->data == pixels_.get() + (2 * kWidth + 3) * 3;
  EXPECT_EQ(there, GetParam().channels == 3 && !GetParam().planar);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RawPixels,
                         testing::Values(Layout{3, false}, Layout{3, true}, Layout{1, false}),
                         [](const auto& layout) {
                           return layout.param.channels == 1 ? "Gray"
                                  : layout.param.planar      ? "Planar"
                                                             : "Rgb";
                         });

}  // namespace
}  // namespace headrace::server::decode
