// JPEGs of the cache `encoded` that are tiled in place while they are read.
#include "server/cache/idle_tiler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "server/cache/encoded_source.h"
#include "server/decode/jpeg_tiles.h"
#include "server/source/formats/image_folder.h"
#include "server/source/formats/paired_folders.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

using server::cache::Arena;
using server::cache::IdleTiler;
using server::cache::keep_tiled;
using server::cache::TiledSource;
using server::decode::JpegTiler;
using server::decode::TileMap;
using server::source::Sample;
using server::source::Source;
using Bytes = std::vector<std::uint8_t>;

/// Its header gives more than kMostPixels; the rest is not read.
Bytes claiming_to_be_large(Bytes file) {
  for (std::size_t i = 0; i + 8 < file.size(); ++i)
    if (file[i] == 0xFF && file[i + 1] == 0xC0) {
      file[i + 5] = file[i + 7] = 0x10;
      return file;
    }
  return {};
}

class IdleTiling : public ::testing::Test {
 protected:
  void put(const std::string& name, const Bytes& file) {
    folder_.put("all/" + name, std::string(file.begin(), file.end()));
  }
  void put_jpegs(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i)
      put(std::to_string(1000 + i) + ".jpg",
          pixels::make_jpeg({.width = 160 + 8 * static_cast<int>(i % 5), .height = 120, .seed = i}));
  }
  void open(std::uint64_t budget = 64 << 20) {
    real_ = server::source::open_image_folder(folder_.path()).value();
    arena_ = Arena::create("source `s`, cache.encoded", budget).value();
    kept_ = keep_tiled(real_, arena_);
  }
  void tile_all() {
    while (kept_.tiler->has_work()) kept_.tiler->tile_one(worker_);
  }
  static Bytes read(const Source& source, std::uint64_t index, Sample& sample) {
    const auto done = source.read(index, sample);
    EXPECT_TRUE(done) << done.error().message;
    return {sample.items[0].bytes.begin(), sample.items[0].bytes.end()};
  }
  void read_all() {
    for (std::uint64_t i = 0; i < real_->size(); ++i) read(*kept_.source, i, sample_);
  }
  [[nodiscard]] bool lent() const { return sample_.items[0].bytes.data() != sample_.items[0].storage.data(); }

  TempFolder folder_;
  std::shared_ptr<const Source> real_;
  std::shared_ptr<Arena> arena_;
  TiledSource kept_;
  std::optional<JpegTiler> worker_;
  Sample sample_;
};

TEST_F(IdleTiling, OverwritesReadFilesWithTilesAndLendsThemFromThenOn) {
  put_jpegs(12);
  open();
  read_all();
  EXPECT_EQ(kept_.tiler->counts().waiting, 12U);
  const std::uint64_t used = arena_->used();
  Sample plain;
  for (std::uint64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(read(*kept_.source, i, sample_), read(*real_, i, plain)) << "before";
    EXPECT_FALSE(lent());
  }
  tile_all();
  std::uint64_t before = 0, after = 0;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const Bytes file = read(*real_, i, plain);
    Bytes tiled;
    ASSERT_EQ(worker_->tile(file, tiled), server::decode::Tiling::kTiled);
    EXPECT_EQ(read(*kept_.source, i, sample_), tiled);
    EXPECT_TRUE(lent());
    EXPECT_TRUE(TileMap::claimed_by(sample_.items[0].bytes));
    before += file.size();
    after += tiled.size();
  }
  const auto counts = kept_.tiler->counts();
  EXPECT_EQ(counts.tiled, 12U);
  EXPECT_EQ(counts.untiled, 0U);
  EXPECT_EQ(counts.waiting, 0U);
  EXPECT_EQ(counts.bytes_before, before);
  EXPECT_EQ(counts.bytes, after);
  EXPECT_GT(counts.busy_ns, 0U);
  EXPECT_EQ(arena_->used(), used) << "nothing more is allocated";
  kept_.tiler->tile_one(worker_);
  EXPECT_EQ(kept_.tiler->counts().tiled, 12U) << "there is nothing left to do";
}

TEST_F(IdleTiling, KeepsWhatCannotBeTiled) {
  const Bytes jpeg = pixels::make_jpeg({.width = 160, .height = 120});
  put("a_small.jpg", pixels::make_jpeg({.width = 40, .height = 40}));
  put("b_arithmetic.jpg", pixels::make_jpeg({.width = 160, .height = 120, .arithmetic = true}));
  put("c_cut.jpg", {jpeg.begin(), jpeg.begin() + static_cast<std::ptrdiff_t>(jpeg.size() / 2)});
  put("d_none.png", {'n', 'o', 'n', 'e'});
  put("e_large.jpg", claiming_to_be_large(jpeg));
  put("f_empty.jpg", {});
  put("g_sound.jpg", jpeg);
  open();
  read_all();
  EXPECT_EQ(kept_.tiler->counts().waiting, 2U)
      << "the truncated one, which its header does not show, and the intact one";
  EXPECT_EQ(kept_.tiler->counts().untiled, 5U);
  tile_all();
  EXPECT_EQ(kept_.tiler->counts().tiled, 1U);
  EXPECT_EQ(kept_.tiler->counts().untiled, 6U);
  Sample plain;
  for (std::uint64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(read(*kept_.source, i, sample_), read(*real_, i, plain)) << real_->name(i);
    EXPECT_TRUE(kept_.tiler->settled(i)) << real_->name(i);
    if (!sample_.items[0].bytes.empty()) {
      EXPECT_TRUE(lent()) << real_->name(i);
    }
  }
}

TEST_F(IdleTiling, NeverUsesMoreThanTheBudget) {
  put_jpegs(40);
  const std::uint64_t each = std::filesystem::file_size(folder_.path() / "all/1000.jpg");
  open(10 * each);
  read_all();
  EXPECT_EQ(arena_->counts().samples, kept_.tiler->counts().waiting);
  EXPECT_GE(arena_->counts().samples, 7U);
  EXPECT_LE(arena_->counts().samples, 10U);
  tile_all();
  EXPECT_LE(arena_->used(), 10 * each);
  EXPECT_EQ(kept_.tiler->counts().tiled, arena_->counts().samples);
  EXPECT_LE(kept_.tiler->counts().bytes, arena_->used());
  Sample plain;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Bytes file = read(*real_, i, plain), now = read(*kept_.source, i, sample_);
    Bytes tiled;
    ASSERT_EQ(worker_->tile(file, tiled), server::decode::Tiling::kTiled);
    EXPECT_TRUE(now == file || now == tiled) << "no neighbor overwrote it";
  }
}

TEST_F(IdleTiling, DoesNotTileAFileThatOutgrowsItsRoom) {
  put_jpegs(2);
  // One scan instead of several needs more than the extra sixteenth that is reserved for such a file.
  const Bytes wide = pixels::make_jpeg({.width = 700,
                                        .height = 525,
                                        .horizontal = 4,
                                        .vertical = 2,
                                        .progressive = true,
                                        .quality = 75,
                                        .seed = 3});
  Bytes tiled;
  ASSERT_EQ(JpegTiler().tile(wide, tiled), server::decode::Tiling::kTiled);
  ASSERT_GT(tiled.size(), JpegTiler::room(wide, IdleTiler::kMostPixels));
  put("1000b.jpg", wide);
  open();
  read_all();
  tile_all();
  EXPECT_EQ(kept_.tiler->counts().tiled, 2U);
  EXPECT_EQ(kept_.tiler->counts().untiled, 1U);
  EXPECT_EQ(read(*kept_.source, 1, sample_), wide);
  EXPECT_TRUE(lent());
}

TEST_F(IdleTiling, RewritesTheImagesOfAPairAndNotItsMask) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto file = [&](std::uint32_t seed) {
      const Bytes bytes = pixels::make_jpeg({.width = 160, .height = 120, .seed = seed});
      return std::string(bytes.begin(), bytes.end());
    };
    folder_.put("image/" + std::to_string(i) + ".jpg", file(i));
    folder_.put("mask/" + std::to_string(i) + ".jpg", file(i + 10));
  }
  const auto pairs =
      server::source::open_paired_folders({{"image", {.path = folder_.path() / "image"}},
                                           {"mask", {.path = folder_.path() / "mask", .mask = true}}});
  ASSERT_TRUE(pairs) << pairs.error().message;
  kept_ = keep_tiled(*pairs, Arena::create("a", 1 << 20).value());
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(kept_.source->read(i, sample_));
      EXPECT_EQ(TileMap::claimed_by(sample_.items[0].bytes), round > 0);
      EXPECT_FALSE(TileMap::claimed_by(sample_.items[1].bytes));
    }
    tile_all();
  }
  EXPECT_EQ(kept_.tiler->counts().tiled, 3U);
  EXPECT_EQ(kept_.tiler->counts().untiled, 0U);
}

TEST_F(IdleTiling, ReadersSeeOneFileOrTheOtherWhileWorkersRewrite) {
  constexpr std::uint64_t kSamples = 60;
  put_jpegs(kSamples);
  open();
  std::vector<Bytes> plain, tiled(kSamples);
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    plain.push_back(read(*real_, i, sample_));
    worker_.emplace();
    ASSERT_EQ(worker_->tile(plain[i], tiled[i]), server::decode::Tiling::kTiled);
  }
  read_all();
  constexpr int kReaders = 3;
  std::atomic<int> reading{0};
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0}, copies{0}, spans{0};
  const auto look = [&](std::uint64_t seed) {
    Sample sample;
    // Keeps lent files, as reading ahead does, and compares them again later.
    std::map<std::uint64_t, std::span<const std::uint8_t>> held;
    std::uint64_t reads = 0, beyond = 0;  // one more round after the last one was rewritten
    for (std::uint64_t i = seed; beyond <= kSamples; i = (i + 7) % kSamples, beyond += done.load()) {
      if (++reads == kSamples) ++reading;
      const bool open = !kept_.tiler->settled(i);
      const Bytes now = read(*kept_.source, i, sample);
      if (now != plain[i] && now != tiled[i]) ++wrong;
      const bool owned = sample.items[0].bytes.data() == sample.items[0].storage.data();
      if (owned && open) ++copies;
      if (!owned) ++spans;
      if (!owned) held.emplace(i, sample.items[0].bytes);
    }
    for (const auto& [i, bytes] : held)
      if (!std::equal(bytes.begin(), bytes.end(), tiled[i].begin(), tiled[i].end())) ++wrong;
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < kReaders; ++seed) threads.emplace_back(look, seed);
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      std::optional<JpegTiler> tiler;
      while (reading.load() < kReaders) std::this_thread::yield();
      while (kept_.tiler->counts().tiled + kept_.tiler->counts().untiled < kSamples)
        kept_.tiler->tile_one(tiler);
      done = true;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GE(copies, kReaders * kSamples - kReaders);
  EXPECT_GE(spans, kReaders * kSamples);
  EXPECT_EQ(kept_.tiler->counts().tiled, kSamples);
  read_all();
  EXPECT_TRUE(lent());
}

}  // namespace
}  // namespace headrace::testing
