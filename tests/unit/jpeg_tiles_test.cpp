// Restart-tiled JPEG: no pixel differs for any file and region, and a forged index does no harm.
#include "server/decode/jpeg_tiles.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "server/decode/tile_jpeg.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/pixels/regions.h"

namespace headrace::server::decode {
namespace {

using pixels::below;
using pixels::cut;
using pixels::decode_region;
using pixels::JpegKind;
using pixels::make_jpeg;
using Bytes = std::vector<std::uint8_t>;

std::string describe(const JpegKind& kind) {
  return std::to_string(kind.width) + "x" + std::to_string(kind.height) + ", " +
         std::to_string(kind.components) + " components, luma " + std::to_string(kind.horizontal) + "x" +
         std::to_string(kind.vertical) + (kind.progressive ? ", progressive" : "");
}

/// HEADRACE_TEST_CROPS: regions of each file.
int crops() {
  const char* text = std::getenv("HEADRACE_TEST_CROPS");
  return text == nullptr ? 60 : std::atoi(text);
}

class JpegTiles : public ::testing::Test {
 protected:
  /// The whole and random regions of a file, tiled and not.
  void expect_same_pixels(const Bytes& file, int regions, const std::string& what) {
    ASSERT_EQ(tiler_.tile(file, tiled_), Tiling::kTiled) << what;
    const auto whole = decode_region(plain_, file, {});
    ASSERT_TRUE(whole) << what;
    const auto size = decoder_.open(tiled_, kMaxSide * std::uint64_t{kMaxSide});
    ASSERT_TRUE(size) << what << ": " << size.error().detail;
    ASSERT_EQ(*size, plain_.open(file, kMaxSide * std::uint64_t{kMaxSide}).value()) << what;
    ASSERT_EQ(decode_region(decoder_, tiled_, {}).value(), *whole) << what;
    for (int i = 0; i < regions; ++i) {
      Rect region = pixels::random_region(random_, *size);
      // Sometimes only the last columns, which may be a small part of a tile.
      if (i % 6 == 0) {
        region.width = 1 + below(random_, 12);
        region.left = size->width - region.width;
      }
      const auto pixels = decode_region(decoder_, tiled_, region, i % 2 == 1);
      ASSERT_TRUE(pixels) << pixels.error().detail;
      ASSERT_EQ(*pixels, cut(*whole, size->width, region))
          << what << ", region " << region.left << "," << region.top << " " << region.width << "x"
          << region.height;
      EXPECT_FALSE(decoder_.warned()) << what << ": " << decoder_.warning();
    }
  }

  std::mt19937 random_{3};
  Decoder plain_, decoder_;
  JpegTiler tiler_;
  Bytes tiled_;
};

TEST_F(JpegTiles, EveryRegionOfEveryKindOfFileIsThatOfTheFileItself) {
  int compared = 0;
  for (const auto& [components, horizontal, vertical] : std::vector<std::array<int, 3>>{{3, 1, 1},
                                                                                        {3, 2, 1},
                                                                                        {3, 2, 2},
                                                                                        {3, 1, 2},
                                                                                        {3, 4, 1},
                                                                                        {3, 4, 2},
                                                                                        {3, 1, 4},
                                                                                        {3, 3, 1},
                                                                                        {3, 2, 4},
                                                                                        {1, 1, 1},
                                                                                        {4, 1, 1},
                                                                                        {4, 2, 2}}) {
    const bool ycck = components == 4 && horizontal == 2;
    const int mcu = 8 * (components == 1 ? 1 : horizontal), tile = tile_mcus(mcu) * mcu;
    for (const bool progressive : {false, true}) {
      // All cases in which a row of MCUs can end: within a tile, an MCU or a block.
      for (const int more : {1, 2, 3, 5, mcu - 1, mcu, mcu + 1, 2 * mcu, 3 * mcu - 1, 3 * mcu + 1, tile - mcu,
                             tile, tile + 2, 2 * tile, 3 * tile - mcu}) {
        JpegKind kind{.width = tile + more,
                      .height = 1 + below(random_, 150),
                      .components = components,
                      .horizontal = horizontal,
                      .vertical = vertical,
                      .progressive = progressive,
                      .ycck = ycck,
                      .restart_interval = more % 2 == 0 ? 3 : 0,
                      .quality = 50 + below(random_, 50)};
        kind.seed = static_cast<std::uint32_t>(random_());
        ASSERT_NO_FATAL_FAILURE(expect_same_pixels(make_jpeg(kind), crops(), describe(kind)));
        compared += crops();
      }
    }
  }
  std::printf("%d regions compared\n", compared);
}

TEST_F(JpegTiles, RgbAndLargeImagesToo) {
  for (const JpegKind& kind : {JpegKind{.width = 300, .height = 200, .rgb = true},
                               JpegKind{.width = 3001, .height = 1999, .quality = 30},
                               // An index of two segments.
                               JpegKind{.width = 4801, .height = 2200, .horizontal = 1, .vertical = 1}})
    ASSERT_NO_FATAL_FAILURE(expect_same_pixels(make_jpeg(kind), 10, describe(kind)));
}

TEST_F(JpegTiles, RealFilesToo) {
  const char* const folder = std::getenv("HEADRACE_TEST_JPEGS");
  if (folder == nullptr) GTEST_SKIP() << "HEADRACE_TEST_JPEGS names no folder of JPEGs";
  std::map<std::string_view, int> became;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const Bytes file((std::istreambuf_iterator<char>(in)), {});
    const Tiling tiling = tiler_.tile(file, tiled_);
    ++became[name_of(tiling)];
    if (tiling != Tiling::kTiled) continue;
    ASSERT_NO_FATAL_FAILURE(expect_same_pixels(file, crops(), entry.path().string()));
  }
  for (const auto& [name, count] : became) std::printf("%d %s\n", count, std::string(name).c_str());
  EXPECT_GT(became["tiled"], 0);
}

/// The file as programs see it that do not use the index.
Bytes without_index(const Bytes& tiled) {
  Bytes plain = tiled;
  while (TileMap::claimed_by(plain))
    plain.erase(plain.begin() + 2, plain.begin() + 4 + (plain[4] << 8 | plain[5]));
  return plain;
}

TEST_F(JpegTiles, AreOrdinaryJpegsThatMayBeWider) {
  bool edge_differs = false;
  for (int width = 65; width <= 256; width += 3) {
    const JpegKind kind{.width = width, .height = 40, .seed = static_cast<std::uint32_t>(width)};
    const Bytes file = make_jpeg(kind);
    ASSERT_EQ(tiler_.tile(file, tiled_), Tiling::kTiled);
    const Bytes ordinary = without_index(tiled_);
    const ImageSize size = decoder_.open(ordinary, 1'000'000).value();
    const bool padded = (width + 15) / 16 % 4 != 0;
    EXPECT_EQ(size.height, 40);
    EXPECT_EQ(size.width, padded ? (width + 63) / 64 * 64 : width);
    const Bytes whole = decode_region(plain_, file, {}).value();
    const Bytes seen = decode_region(decoder_, ordinary, {}).value();
    EXPECT_EQ(cut(seen, size.width, {0, 0, width - 1, 40}), cut(whole, width, {0, 0, width - 1, 40}));
    edge_differs |= cut(seen, size.width, {0, 0, width, 40}) != whole;
  }
  EXPECT_TRUE(edge_differs) << "then the tests of regions would not notice if the edge were upsampled as any "
                               "other column";
}

TEST_F(JpegTiles, KeepSegmentsThatAreNotTheirs) {
  Bytes file = make_jpeg({.width = 200, .height = 100});
  Bytes exif = {0xFF, 0xE1, 0, 12, 'E', 'x', 'i', 'f', 0, 0, 1, 2, 3, 4};
  Bytes ours(4 + kTileTag.size() + 2);
  const Bytes head = {0xFF, kTileMarker, 0, 18};
  std::copy(kTileTag.begin(), kTileTag.end(), std::copy(head.begin(), head.end(), ours.begin()));
  file.insert(file.begin() + 20, exif.begin(), exif.end());  // behind APP0
  file.insert(file.begin() + 20, ours.begin(), ours.end());
  ASSERT_EQ(tiler_.tile(file, tiled_), Tiling::kTiled);
  EXPECT_EQ(std::search(tiled_.begin(), tiled_.end(), exif.begin(), exif.end()) != tiled_.end(), true);
  const Bytes rest = without_index(tiled_);
  EXPECT_EQ(std::search(rest.begin(), rest.end(), kTileTag.begin(), kTileTag.end()), rest.end());
  EXPECT_TRUE(std::equal(rest.begin(), rest.begin() + 20, file.begin())) << "APP0 is unchanged";
  // Removing them does no harm.
  const auto at = std::search(tiled_.begin(), tiled_.end(), exif.begin(), exif.end());
  const Bytes whole = decode_region(plain_, file, {}).value();
  tiled_.erase(at, at + static_cast<std::ptrdiff_t>(exif.size()));
  EXPECT_EQ(decode_region(decoder_, tiled_, {70, 20, 90, 60}).value(), cut(whole, 200, {70, 20, 90, 60}));
}

TEST_F(JpegTiles, WhatCannotBeTiledIsLeftAndNamed) {
  const auto became = [this](const Bytes& file) { return tiler_.tile(file, tiled_); };
  EXPECT_EQ(became({}), Tiling::kNoJpeg);
  EXPECT_EQ(became({0x89, 'P', 'N', 'G'}), Tiling::kNoJpeg);
  EXPECT_EQ(became(make_jpeg({.width = 64, .height = 300})), Tiling::kSmall);
  EXPECT_EQ(became(make_jpeg({.width = 1, .height = 1})), Tiling::kSmall);
  EXPECT_EQ(became(make_jpeg({.width = 200, .arithmetic = true})), Tiling::kUnsupported);
  EXPECT_EQ(became(make_jpeg({.width = 65'480, .height = 1})), Tiling::kLarge);
  EXPECT_EQ(became(make_jpeg({.width = 8000, .height = 4200, .components = 1})), Tiling::kLarge);
  EXPECT_EQ(became(pixels::make_many_scans(501)), Tiling::kSmall);
  Bytes file = make_jpeg({.width = 200, .height = 120});
  EXPECT_EQ(became(Bytes(file.begin(), file.end() - 300)), Tiling::kUndecodable);
  ASSERT_EQ(became(file), Tiling::kTiled);
  EXPECT_EQ(became(Bytes(tiled_)), Tiling::kAlready);
  file[file.size() / 2] = 0xFF;
  file[file.size() / 2 + 1] = 0xD3;  // a restart marker where none belongs
  EXPECT_EQ(became(file), Tiling::kWarned);
}

TEST_F(JpegTiles, AreNeverMadeWithTheTablesOfTheFileBefore) {
  const Bytes file = make_jpeg({.width = 200, .height = 120});
  ASSERT_EQ(tiler_.tile(file, tiled_), Tiling::kTiled);
  const Bytes expected = tiled_;
  ASSERT_EQ(tiler_.tile(make_jpeg({.width = 300, .progressive = true, .quality = 30}), tiled_),
            Tiling::kTiled);
  EXPECT_EQ(tiler_.tile(pixels::without_segments(file, 0xDB), tiled_), Tiling::kUnsupported);
  EXPECT_EQ(tiler_.tile(pixels::without_segments(file, 0xC4), tiled_), Tiling::kTiled);
  EXPECT_EQ(tiled_, expected);
}

TEST_F(JpegTiles, AnIndexThatDoesNotFitIsABadImage) {
  const Bytes file = make_jpeg({.width = 200, .height = 120});
  ASSERT_EQ(tiler_.tile(file, tiled_), Tiling::kTiled);
  constexpr std::size_t kNumbers = 2 + 4 + 14;
  for (std::size_t at = kNumbers; at < kNumbers + 8 + 2 * 8 * 4; at += 2) {
    for (const int change : {-1, 1, 0x100, 0x8000}) {
      // Any width with the same number of tiles could be the right one.
      if (at == kNumbers && std::abs(change) == 1) continue;
      Bytes changed = tiled_;
      const int value = (changed[at] << 8 | changed[at + 1]) + change;
      changed[at] = static_cast<std::uint8_t>(value >> 8);
      changed[at + 1] = static_cast<std::uint8_t>(value);
      const auto pixels = decode_region(decoder_, changed, {10, 60, 100, 60});
      ASSERT_FALSE(pixels) << "byte " << at << ", changed by " << change;
      EXPECT_EQ(pixels.error().reason, BadReason::kCorrupt);
    }
  }
}

TEST_F(JpegTiles, LengthsThatAddUpAndAreWrongAreSeenWhereTheyMatter) {
  const Bytes file = make_jpeg({.width = 200, .height = 120});
  ASSERT_EQ(tiler_.tile(file, tiled_), Tiling::kTiled);
  constexpr Rect kRegion{80, 40, 60, 40};
  const auto right = decode_region(decoder_, tiled_, kRegion);
  ASSERT_TRUE(right);
  constexpr std::size_t kLengths = 2 + 4 + 14 + 8;
  int refused = 0, untouched = 0;
  for (std::size_t at = kLengths; at + 4 <= kLengths + 2 * 8 * 4; at += 2) {
    Bytes changed = tiled_;
    const auto add = [&changed](std::size_t to, int what) {
      const int value = (changed[to] << 8 | changed[to + 1]) + what;
      changed[to] = static_cast<std::uint8_t>(value >> 8);
      changed[to + 1] = static_cast<std::uint8_t>(value);
    };
    add(at, 1);
    add(at + 2, -1);
    const auto pixels = decode_region(decoder_, changed, kRegion);
    if (pixels) {
      ++untouched;
      EXPECT_EQ(*pixels, *right) << "byte " << at;
    } else {
      ++refused;
      EXPECT_EQ(pixels.error().reason, BadReason::kCorrupt);
    }
  }
  EXPECT_GT(refused, 5);
  EXPECT_GT(untouched, 5);
}

TEST_F(JpegTiles, OneColumnThatClaimsToBeNarrowIsRefused) {
  Bytes file = make_jpeg({.width = 64, .height = 16, .restart_interval = 4});
  const std::array<std::uint8_t, 2> sos = {0xFF, 0xDA};
  const auto at =
      static_cast<std::size_t>(std::search(file.begin(), file.end(), sos.begin(), sos.end()) - file.begin());
  const std::size_t scan = at + 2 + static_cast<std::size_t>(file[at + 2] << 8 | file[at + 3]),
                    tables = scan - 20;
  const std::vector<std::uint32_t> lengths = {static_cast<std::uint32_t>(file.size() - scan - 2)};
  for (const std::int32_t width : {1, 4, 64}) {
    const auto index = tile_index({width, 16}, 4, tables, lengths).value();
    Bytes hostile = file;
    hostile.insert(hostile.begin() + 2, index.begin(), index.end());
    const auto pixels = decode_region(decoder_, hostile, {0, 0, 1, 1});
    ASSERT_FALSE(pixels);
    EXPECT_EQ(pixels.error().reason, BadReason::kCorrupt);
  }
}

TEST_F(JpegTiles, TheHeaderAloneGivesTheRoom) {
  constexpr std::uint64_t kMost = 200'000;
  for (const JpegKind& kind : {JpegKind{.width = 400, .height = 300}, JpegKind{.width = 90, .components = 1},
                               JpegKind{.width = 300, .height = 200, .progressive = true}}) {
    const Bytes file = make_jpeg(kind);
    ASSERT_EQ(tiler_.tile(file, tiled_), Tiling::kTiled);
    EXPECT_GE(JpegTiler::room(file, kMost), tiled_.size()) << describe(kind);
    EXPECT_LT(JpegTiler::room(file, kMost), file.size() + file.size() / 4 + 256) << describe(kind);
    EXPECT_EQ(JpegTiler::room(tiled_, kMost), 0U) << "tiled already";
    const Bytes half(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2));
    EXPECT_GE(JpegTiler::room(half, kMost), half.size()) << "its header is whole";
  }
  EXPECT_EQ(JpegTiler::room(make_jpeg({.width = 64, .height = 64}), kMost), 0U) << "one tile wide";
  EXPECT_EQ(JpegTiler::room(make_jpeg({.width = 501, .height = 400}), kMost), 0U) << "more than kMost pixels";
  EXPECT_EQ(JpegTiler::room(make_jpeg({.width = 200, .arithmetic = true}), kMost), 0U);
  EXPECT_EQ(JpegTiler::room({}, kMost), 0U);
  const Bytes file = make_jpeg({.width = 200, .height = 90});
  for (std::size_t size = 0; size < 700; ++size) {
    Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    const std::uint64_t room = JpegTiler::room(cut, kMost);
    EXPECT_TRUE(room == 0 || room >= size);
    cut = file;
    cut[size] = static_cast<std::uint8_t>(random_());
    const std::uint64_t other = JpegTiler::room(cut, kMost);
    EXPECT_TRUE(other == 0 || other >= cut.size());
  }
}

TEST_F(JpegTiles, HostileBytesDoNoHarm) {
  int decoded = 0, refused = 0;
  for (const JpegKind& kind :
       {JpegKind{.width = 200, .height = 90}, JpegKind{.width = 90, .height = 60, .components = 1},
        JpegKind{.width = 150, .height = 70, .components = 4, .ycck = true}}) {
    ASSERT_EQ(tiler_.tile(make_jpeg(kind), tiled_), Tiling::kTiled);
    for (int i = 0; i < 100 * crops(); ++i) {
      Bytes file = tiled_;
      // Mostly within the index and the headers.
      const auto reach = i % 4 == 0 ? file.size() : std::min<std::size_t>(file.size(), 900);
      for (unsigned k = 0; k <= random_() % 3; ++k)
        file[random_() % reach] = static_cast<std::uint8_t>(random_() % 3 == 0 ? 0xFF : random_());
      if (i % 5 == 0) file.resize(random_() % file.size());
      if (i % 7 == 0 && file.size() > 100) file.erase(file.begin() + 20, file.begin() + 22);
      const auto size = decoder_.open(file, 4'000'000);
      if (!size) {
        ++refused;
        continue;
      }
      (decode_region(decoder_, file, pixels::random_region(random_, *size)) ? decoded : refused)++;
    }
  }
  EXPECT_GT(decoded, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace headrace::server::decode
