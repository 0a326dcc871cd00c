// Our Huffman decoder against libjpeg's own, within libjpeg, also for damaged files.
#include "server/decode/jpeg_entropy.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/pixels/jpeg_reading.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/pixels/regions.h"

namespace headrace::server::decode {
namespace {

using pixels::below;
using pixels::JpegKind;
using pixels::make_jpeg;
using pixels::random_region;
using Reading = pixels::JpegReading;
using Bytes = std::vector<std::uint8_t>;

struct Sampling {
  int components, horizontal, vertical;
};
constexpr Sampling kSamplings[] = {{3, 1, 1}, {3, 2, 1}, {3, 2, 2}, {3, 1, 2}, {3, 4, 1},
                                   {3, 2, 4}, {1, 1, 1}, {1, 2, 2}, {4, 1, 1}};

JpegKind random_kind(std::mt19937& random, Sampling sampling) {
  constexpr int kQualities[] = {2, 30, 75, 92, 100};
  constexpr int kRestarts[] = {0, 0, 1, 7};
  return {.width = 130 + below(random, 300),
          .height = 110 + below(random, 200),
          .components = sampling.components,
          .horizontal = sampling.horizontal,
          .vertical = sampling.vertical,
          .restart_interval = kRestarts[random() % 4],
          .quality = kQualities[random() % 5],
          .own_tables = random() % 2 == 0,
          .seed = static_cast<std::uint32_t>(random())};
}

std::string text(const JpegKind& kind, Rect region) {
  return std::to_string(kind.components) + " components, luma " + std::to_string(kind.horizontal) + "x" +
         std::to_string(kind.vertical) + ", " + std::to_string(kind.width) + "x" +
         std::to_string(kind.height) + ", restart " + std::to_string(kind.restart_interval) + ", quality " +
         std::to_string(kind.quality) + ", seed " + std::to_string(kind.seed) + ", region " +
         std::to_string(region.left) + "," + std::to_string(region.top) + " " + std::to_string(region.width) +
         "x" + std::to_string(region.height);
}

TEST(JpegEntropy, GivesLibjpegsPixelsOfEveryRegion) {
  std::mt19937 random(3);
  JpegEntropy entropy;
  int ours = 0;
  for (const Sampling sampling : kSamplings) {
    for (int picture = 0; picture < 24; ++picture) {
      const JpegKind kind = random_kind(random, sampling);
      const Bytes file = make_jpeg(kind);
      for (int i = 0; i < 6; ++i) {
        const Rect region =
            i == 0 ? Rect{0, 0, kind.width, kind.height} : random_region(random, {kind.width, kind.height});
        const Reading theirs(file, region, nullptr);
        const Reading mine(file, region, &entropy);
        ASSERT_EQ(theirs.code, 0);
        ASSERT_EQ(mine.code, 0) << text(kind, region);
        ASSERT_EQ(mine.warnings, theirs.warnings) << text(kind, region);
        ASSERT_TRUE(mine.pixels == theirs.pixels) << text(kind, region);
        ours += mine.ours;
      }
    }
  }
  EXPECT_GT(ours, 1000) << "libjpeg's own decoder read the files: nothing was compared";
}

TEST(JpegEntropy, GivesLibjpegsPixelsOfDamagedFilesOrLeavesThemToIt) {
  std::mt19937 random(4);
  JpegEntropy entropy;
  int same = 0, odd = 0;
  for (const Sampling sampling : kSamplings) {
    for (int picture = 0; picture < 6; ++picture) {
      const JpegKind kind = random_kind(random, sampling);
      const Bytes whole = make_jpeg(kind);
      const Rect all{0, 0, kind.width, kind.height};
      // Within the scan: damaged headers are refused before it.
      const std::size_t scan = whole.size() - whole.size() / 2;
      for (int i = 0; i < 20; ++i) {
        Bytes file = whole;
        switch (i % 4) {
          case 0:
            file.resize(scan + random() % (whole.size() - scan));
            break;
          case 1:
            file.erase(file.begin() + static_cast<std::ptrdiff_t>(scan + random() % (whole.size() - scan)));
            break;
          default:
            file[scan + random() % (whole.size() - scan)] ^= static_cast<std::uint8_t>(1U << random() % 8);
        }
        const Reading mine(file, all, &entropy);
        if (mine.code == kOddScan) {
          ++odd;
          continue;
        }
        if (!mine.ours) continue;
        const Reading theirs(file, all, nullptr);
        ASSERT_EQ(mine.code, theirs.code) << text(kind, all) << ", damage " << i;
        ASSERT_EQ(mine.warnings, theirs.warnings) << text(kind, all) << ", damage " << i;
        ASSERT_TRUE(mine.pixels == theirs.pixels) << text(kind, all) << ", damage " << i;
        ++same;
      }
    }
  }
  EXPECT_GT(same, 50);
  EXPECT_GT(odd, 50);
}

/// In libjpeg every symbol without a size ends a block, except 0xF0.
TEST(JpegEntropy, TakesAnySymbolWithoutASizeForABlocksEnd) {
  const Rect all{0, 0, 300, 200};
  const Bytes whole = make_jpeg({.width = 300, .height = 200, .quality = 60, .own_tables = true});
  Bytes file = whole;
  int patched = 0;
  for (std::size_t at = 2; file[at + 1] != 0xDA; at += 2U + (file[at + 2] << 8 | file[at + 3])) {
    if (file[at + 1] != 0xC4 || file[at + 4] >> 4 != 1) continue;
    for (std::size_t i = at + 4 + 17; i < at + 2U + (file[at + 2] << 8 | file[at + 3]); ++i)
      if (file[i] == 0x00) {
        file[i] = 0x50;
        ++patched;
      }
  }
  ASSERT_EQ(patched, 2);
  JpegEntropy entropy;
  const Reading mine(file, all, &entropy);
  ASSERT_TRUE(mine.ours);
  EXPECT_EQ(mine.code, 0);
  EXPECT_TRUE(mine.pixels == Reading(whole, all, nullptr).pixels);
}

TEST(JpegEntropy, LeavesToLibjpegWhatItCannotRead) {
  JpegEntropy entropy;
  const Rect all{0, 0, 200, 150};
  const JpegKind baseline{.width = 200, .height = 150};
  EXPECT_TRUE(Reading(make_jpeg(baseline), all, &entropy).ours);
  for (const bool progressive : {true, false}) {
    JpegKind kind = baseline;
    (progressive ? kind.progressive : kind.arithmetic) = true;
    const Reading reading(make_jpeg(kind), all, &entropy);
    EXPECT_FALSE(reading.ours);
    EXPECT_EQ(reading.code, 0);
  }
}

/// For a small file, building tables costs more than they save, unless they equal the previous file's.
TEST(JpegEntropy, MakesNoTablesForSmallFiles) {
  JpegEntropy entropy;
  const Bytes small = make_jpeg({.width = 32, .height = 32});
  const Rect all{0, 0, 32, 32};
  EXPECT_FALSE(Reading(small, all, &entropy).ours);
  EXPECT_TRUE(Reading(make_jpeg({.width = 200, .height = 150}), {0, 0, 200, 150}, &entropy).ours);
  EXPECT_TRUE(Reading(small, all, &entropy).ours);
  EXPECT_FALSE(Reading(make_jpeg({.width = 32, .height = 32, .own_tables = true}), all, &entropy).ours);
}

/// The same rows, warnings and errors as libjpeg gives for the whole file, even if the damage is after rows
/// that were already returned.
TEST(JpegEntropy, DamagedFilesAreWhatTheyAreToLibjpeg) {
  std::mt19937 random(5);
  Decoder decoder;
  int warned = 0;
  for (const Sampling sampling : kSamplings) {
    if (sampling.components != 3) continue;  // else colors are converted by us
    for (int picture = 0; picture < 8; ++picture) {
      const JpegKind kind = random_kind(random, sampling);
      Bytes file = make_jpeg(kind);
      const std::size_t scan = file.size() / 2;
      file[scan + random() % (file.size() - scan - 2)] ^= static_cast<std::uint8_t>(1U << random() % 8);
      const Rect all{0, 0, kind.width, kind.height};
      const Reading theirs(file, all, nullptr);
      for (const bool keep : {false, true}) {
        const auto pixels = pixels::decode_region(decoder, file, all, keep);
        ASSERT_EQ(pixels.has_value(), theirs.code == 0) << text(kind, all);
        if (!pixels) continue;
        ASSERT_TRUE(*pixels == theirs.pixels) << text(kind, all);
        ASSERT_EQ(decoder.warned(), theirs.warnings > 0) << text(kind, all);
        ASSERT_EQ(decoder.warning(), theirs.warning) << text(kind, all);
      }
      warned += theirs.warnings > 0;
    }
  }
  EXPECT_GT(warned, 10);
}

}  // namespace
}  // namespace headrace::server::decode
