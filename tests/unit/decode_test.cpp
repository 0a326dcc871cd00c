#include "server/decode/decoder.h"

#include <gtest/gtest.h>
#include <spng.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

#include "tests/pixels/make_jpeg.h"
#include "tests/pixels/regions.h"

namespace headrace::server::decode {
namespace {

using pixels::below;
using pixels::cut;
using pixels::decode_region;
using pixels::JpegKind;
using pixels::make_jpeg;
using pixels::make_many_scans;
using pixels::random_region;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kMaxPixels = 178'956'970;

// Decodes the whole image by libjpeg alone; CMYK as it is stored.
Bytes reference(const Bytes& file, int components) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), file.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  Bytes pixels(std::size_t{info.output_width} * info.output_height *
               static_cast<std::size_t>(info.output_components));
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.data() + std::size_t{info.output_scanline} * info.output_width *
                                       static_cast<std::size_t>(info.output_components);
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  if (components != 4) return pixels;
  Bytes rgb;
  for (std::size_t i = 0; i < pixels.size(); i += 4) {
    for (std::size_t c = 0; c < 3; ++c) {
      // Inverted inks: round(ink * key / 255) is paper left, by PIL's integer formula on the complement.
      const int key = pixels[i + 3], product = (255 - pixels[i + c]) * key + 128;
      rgb.push_back(static_cast<std::uint8_t>(std::max(0, key - ((product + (product >> 8)) >> 8))));
    }
  }
  return rgb;
}

int crops() {
  const char* text = std::getenv("HEADRACE_TEST_CROPS");
  return text == nullptr ? 60 : std::atoi(text);
}

TEST(JpegRegion, EqualsTheSameRectangleOfAFullDecodeForEverySampling) {
  struct Sampling {
    int components, horizontal, vertical;
  };
  std::mt19937 random(7);
  Decoder decoder;
  for (const auto sampling : {Sampling{3, 1, 1},
                              {3, 2, 1},
                              {3, 2, 2},
                              {3, 1, 2},
                              {3, 4, 1},
                              {3, 4, 2},
                              {3, 1, 4},
                              {3, 3, 1},
                              {3, 2, 4},
                              {1, 1, 1},
                              {4, 1, 1}}) {
    for (const bool progressive : {false, true}) {
      for (const int restart : {0, 3}) {
        for (int picture = 0; picture < 3; ++picture) {
          JpegKind kind{.width = 1 + below(random, 260),
                        .height = 1 + below(random, 200),
                        .components = sampling.components,
                        .horizontal = sampling.horizontal,
                        .vertical = sampling.vertical};
          kind.progressive = progressive;
          kind.restart_interval = restart;
          kind.seed = static_cast<std::uint32_t>(random());
          const auto file = make_jpeg(kind);
          const auto whole = reference(file, sampling.components);
          for (int i = 0; i < crops(); ++i) {
            const Rect region = random_region(random, {kind.width, kind.height});
            const auto pixels = decode_region(decoder, file, region, i % 2 == 1);
            ASSERT_TRUE(pixels) << pixels.error().detail;
            ASSERT_EQ(*pixels, cut(whole, kind.width, region))
                << sampling.components << " components, luma " << sampling.horizontal << "x"
                << sampling.vertical << (progressive ? " progressive " : " ") << kind.width << "x"
                << kind.height << " restart " << restart << " region " << region.left << "," << region.top
                << " " << region.width << "x" << region.height;
          }
        }
      }
    }
  }
}

/// If scans are missing, libjpeg smooths between blocks.
TEST(JpegRegion, OfAFileWithoutItsLastScansIsThatOfTheWholeToo) {
  std::mt19937 random(8);
  Decoder decoder;
  for (const int components : {1, 3, 4}) {
    for (int scans = 1; scans <= 9; ++scans) {
      JpegKind kind{
          .width = 90 + below(random, 150), .height = 60 + below(random, 100), .components = components};
      kind.progressive = true;
      kind.scans = scans;
      kind.horizontal = 1 + scans % 2;
      const auto file = make_jpeg(kind);
      const auto whole = reference(file, components);
      for (int i = 0; i < crops(); ++i) {
        const Rect region = random_region(random, {kind.width, kind.height});
        const auto pixels = decode_region(decoder, file, region, i % 2 == 1);
        ASSERT_TRUE(pixels) << pixels.error().detail;
        ASSERT_EQ(*pixels, cut(whole, kind.width, region))
            << components << " components, " << scans << " scans, region " << region.left << "," << region.top
            << " " << region.width << "x" << region.height;
      }
    }
  }
}

/// libjpeg keeps the tables of the previous file for files without tables, such as video frames and damaged
/// files.
TEST(Jpeg, IsNotDecodedWithTheTablesOfTheFileBefore) {
  const auto file = make_jpeg({.width = 200, .height = 120});
  const auto as_in_video = pixels::without_segments(file, 0xC4);  // the standard's Huffman tables are meant
  const auto damaged = pixels::without_segments(file, 0xDB);
  ASSERT_LT(as_in_video.size(), file.size());
  ASSERT_LT(damaged.size(), file.size());
  const auto expected = reference(file, 3);
  Decoder decoder;
  const auto decode = [&](const Bytes& of) { return decode_region(decoder, of, {}); };
  for (const bool progressive : {false, true}) {  // whose tables belong to that file only
    ASSERT_TRUE(decode(make_jpeg({.progressive = progressive, .quality = 30, .seed = 5})));
    const auto pixels = decode(as_in_video);
    ASSERT_TRUE(pixels) << pixels.error().detail;
    EXPECT_EQ(*pixels, expected);
    ASSERT_TRUE(decode(make_jpeg({.progressive = progressive, .quality = 30, .seed = 5})));
    const auto refused = decode(damaged);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().reason, BadReason::kCorrupt) << refused.error().detail;
  }
  EXPECT_EQ(*decode(file), expected);
}

TEST(Jpeg, IsTruncatedAtEveryLengthThatLacksItsEnd) {
  Decoder decoder;
  for (const bool progressive : {false, true}) {
    const auto file = make_jpeg({.width = 70, .height = 50, .progressive = progressive});
    for (std::size_t length = 3; length < file.size(); length += 7) {
      const auto pixels = decode_region(decoder, std::span(file).first(length), {});
      ASSERT_FALSE(pixels) << length;
      EXPECT_EQ(pixels.error().reason, BadReason::kTruncated) << length << ": " << pixels.error().detail;
    }
    EXPECT_TRUE(decode_region(decoder, file, {}));
  }
}

TEST(Jpeg, WithManyScansIsRefused) {
  Decoder decoder;
  const auto refused = decode_region(decoder, make_many_scans(501), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, BadReason::kUnsupported);
  EXPECT_NE(refused.error().detail.find("500 scans"), std::string::npos) << refused.error().detail;
}

TEST(Jpeg, OfGiganticSizeIsRefusedFromItsHeader) {
  auto file = make_jpeg({.width = 8, .height = 8, .components = 1});
  for (std::size_t i = 0; i + 9 < file.size(); ++i) {
    if (file[i] == 0xFF && file[i + 1] == 0xC0) {
      file[i + 5] = file[i + 7] = 0xFF;
      file[i + 6] = file[i + 8] = 0xDC;
    }
  }
  Decoder decoder;
  const auto size = decoder.open(file, kMaxPixels);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().reason, BadReason::kTooLarge) << size.error().detail;
}

TEST(Jpeg, DamagedInItsDataWarnsButDecodes) {
  auto file = make_jpeg({.width = 160, .height = 120, .horizontal = 1, .vertical = 1});
  const std::size_t at = file.size() / 2;
  file[at] = 0xFF;
  file[at + 1] = 0xD3;  // a misplaced restart marker
  Decoder decoder;
  ASSERT_TRUE(decode_region(decoder, file, {}));
  EXPECT_TRUE(decoder.warned());
  EXPECT_FALSE(decoder.warning().empty());
  ASSERT_TRUE(decode_region(decoder, make_jpeg({}), {}));
  EXPECT_FALSE(decoder.warned()) << "the next image starts without warnings";
}

TEST(Jpeg, WithAMarkerThatNoScanMayHoldIsRefusedForEveryRegion) {
  Decoder decoder;
  for (const int restart : {0, 3}) {
    auto file = make_jpeg({.width = 160, .height = 120, .restart_interval = restart});
    const std::size_t at = file.size() * 3 / 4;
    file[at] = 0xFF;
    file[at + 1] = 0xF2;  // reserved
    for (const Rect region : {Rect{0, 0, 160, 120}, Rect{8, 0, 40, 16}, Rect{30, 100, 60, 20}}) {
      const auto pixels = decode_region(decoder, file, region);
      ASSERT_FALSE(pixels) << restart << " " << region.top;
      EXPECT_EQ(pixels.error().reason, BadReason::kCorrupt) << pixels.error().detail;
    }
  }
  EXPECT_TRUE(decode_region(decoder, make_jpeg({}), {}));
}

TEST(Decoder, NamesWhatIsNotAnImage) {
  Decoder decoder;
  const auto reason = [&](std::string_view text) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    return decoder.open(std::span(bytes, text.size()), kMaxPixels).error().reason;
  };
  EXPECT_EQ(reason(""), BadReason::kEmpty);
  EXPECT_EQ(reason("hello"), BadReason::kUnknownFormat);
  EXPECT_EQ(reason("GIF89a......"), BadReason::kUnknownFormat);
  EXPECT_EQ(reason("\xFF\xD8"), BadReason::kUnknownFormat);
  EXPECT_EQ(reason("\xFF\xD8\xFF"), BadReason::kTruncated);
  EXPECT_EQ(reason("\x89PNG\r\n\x1A\n"), BadReason::kTruncated);
}

Bytes make_png(std::uint32_t width, std::uint32_t height, int interlace = 0) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.width = width;
  header.height = height;
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  header.interlace_method = static_cast<std::uint8_t>(interlace);
  spng_set_ihdr(context, &header);
  Bytes pixels(std::size_t{width} * height * 3);
  std::mt19937 random(width);
  for (auto& p : pixels) p = static_cast<std::uint8_t>(random());
  EXPECT_EQ(spng_encode_image(context, pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE), 0);
  std::size_t size = 0;
  int error = 0;
  void* buffer = spng_get_png_buffer(context, &size, &error);
  Bytes file(static_cast<std::uint8_t*>(buffer), static_cast<std::uint8_t*>(buffer) + size);
  std::free(buffer);
  spng_ctx_free(context);
  return file;
}

TEST(PngRegion, EqualsTheSameRectangleOfTheWhole) {
  Decoder decoder;
  for (const int interlace : {0, 1}) {
    const auto file = make_png(61, 47, interlace);
    const auto whole = decode_region(decoder, file, {});
    ASSERT_TRUE(whole) << whole.error().detail;
    for (const Rect region :
         {Rect{0, 0, 1, 1}, Rect{60, 46, 1, 1}, Rect{5, 20, 40, 27}, Rect{0, 0, 61, 47}}) {
      for (const bool keep : {false, true}) {
        const auto pixels = decode_region(decoder, file, region, keep);
        ASSERT_TRUE(pixels);
        EXPECT_EQ(*pixels, cut(*whole, 61, region));
      }
    }
  }
}

TEST(Png, IsTruncatedWhenItsPixelsEndEarly) {
  Decoder decoder;
  const auto file = make_png(61, 47);
  for (std::size_t length = 8; length + 12 < file.size(); length += 11) {
    // Also if only the first rows are requested: without an end chunk the whole file is read.
    const auto pixels = decode_region(decoder, std::span(file).first(length), {0, 0, 1, 1});
    ASSERT_FALSE(pixels) << length;
    EXPECT_EQ(pixels.error().reason, BadReason::kTruncated) << length << ": " << pixels.error().detail;
  }
}

TEST(Png, ThatClaimsMoreThanItsBytesCanHoldIsRefused) {
  auto file = make_png(8, 8);
  file[18] = 0x30;  // width 8 -> 12,296
  file[22] = 0x30;
  // The checksum of the header would be wrong first; give it the right one.
  std::uint32_t crc = 0xFFFF'FFFFU;
  for (std::size_t i = 12; i < 29; ++i) {
    crc ^= file[i];
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (0xEDB8'8320U & (0U - (crc & 1U)));
  }
  crc = ~crc;
  for (std::size_t i = 0; i < 4; ++i) file[29 + i] = static_cast<std::uint8_t>(crc >> (24 - 8 * i));
  Decoder decoder;
  const auto size = decoder.open(file, kMaxPixels);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().reason, BadReason::kTruncated) << size.error().detail;
  EXPECT_EQ(decoder.open(file, 1000).error().reason, BadReason::kTooLarge);
}

TEST(Decoder, SurvivesFlippedBytes) {
  std::mt19937 random(11);
  Decoder decoder;
  int decoded = 0, refused = 0;
  std::vector<Bytes> files = {make_png(33, 21), make_png(33, 21, 1), make_many_scans(20)};
  for (const bool progressive : {false, true}) {
    for (const int components : {1, 3, 4}) {
      files.push_back(make_jpeg({.width = 53,
                                 .height = 41,
                                 .components = components,
                                 .progressive = progressive,
                                 .restart_interval = 2}));
    }
  }
  for (const auto& original : files) {
    for (int i = 0; i < 3 * crops(); ++i) {
      auto file = original;
      for (unsigned k = 0; k <= random() % 4; ++k)
        file[random() % file.size()] = static_cast<std::uint8_t>(random());
      const auto size = decoder.open(file, 4'000'000);
      if (!size) {
        ++refused;
        continue;
      }
      const Rect region{size->width / 3, size->height / 3, size->width - size->width / 3,
                        size->height - size->height / 3};
      bool good = decoder.begin(region, i % 2 == 0).has_value();
      for (std::int32_t done = 0; good && done < region.height;) {
        const auto rows = decoder.next();
        good = rows.has_value();
        if (good) done += rows->count;
      }
      (good ? decoded : refused)++;
    }
  }
  EXPECT_GT(decoded, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace headrace::server::decode
