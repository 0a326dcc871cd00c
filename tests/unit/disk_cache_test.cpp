// The disk cache for slow sources: it stays within its size, and its samples are complete and correct.
#include "server/io/disk_cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "server/source/formats/synthetic.h"
#include "tests/forwarding_source.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using server::io::CacheFolder;
using server::io::DiskCache;
using server::source::Sample;
using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = 5000;  // two pages with the record's head
constexpr std::uint64_t kFile = 8192;

/// Counts reads; its samples' bytes are all their index. Sample 13 cannot be read.
class Counted final : public ForwardingSource {
 public:
  explicit Counted(std::uint64_t count = 100)
      : ForwardingSource(server::source::make_synthetic(count, kBytes).value()) {}
  Result<void> read(std::uint64_t index, Sample& out) const override {
    ++reads;
    if (index == 13) return fail(ErrorCode::kTransientIo, "sample 13: no disk");
    return ForwardingSource::read(index, out);
  }
  mutable std::atomic<int> reads{0};
};

class DiskCacheTest : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path path() const { return folder_.path() / "cache"; }
  [[nodiscard]] std::shared_ptr<CacheFolder> open(std::uint64_t most = 1'000'000) const {
    return CacheFolder::open(path(), most).value();
  }
  void expect_sample(const DiskCache& cache, std::uint64_t index) {
    const auto read = cache.read(index, sample_);
    ASSERT_TRUE(read) << read.error().to_string();
    ASSERT_EQ(sample_.items.at(0).bytes.size(), kBytes);
    std::uint64_t number = 0;
    std::memcpy(&number, sample_.items[0].bytes.data(), sizeof number);
    EXPECT_EQ(number, index);
    EXPECT_EQ(sample_.items[0].bytes.data(), sample_.items[0].storage.data())
        << "the sample's own memory, as ReadAhead needs";
  }
  /// Files of samples, without the cache's own.
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::recursive_directory_iterator(path()))
      if (entry.is_regular_file() && entry.path().parent_path() != path()) out.push_back(entry.path());
    return out;
  }
  static std::uint64_t pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  static void write(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  }
  static std::string bytes_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempFolder folder_;
  const std::shared_ptr<Counted> source_ = std::make_shared<Counted>();
  Sample sample_;
};

TEST_F(DiskCacheTest, ReadsEachSampleOfTheSourceOnce) {
  for (int round = 0; round < 2; ++round) {
    const DiskCache cache(source_, open());  // the second time as after a restart
    for (std::uint64_t index = 0; index < 10; ++index) expect_sample(cache, index);
  }
  EXPECT_EQ(source_->reads, 10);
  EXPECT_EQ(files().size(), 10U);
  const DiskCache third(source_, open());
  expect_sample(third, 3);
  expect_sample(third, 50);
  EXPECT_EQ(third.counts().hits, 1U);
  EXPECT_EQ(third.counts().misses, 1U);
  EXPECT_EQ(third.counts().budget, 1'000'000U);
  EXPECT_EQ(third.counts().bytes, open()->used());
  EXPECT_FALSE(third.counts().full);
  EXPECT_GE(open()->used(), 11 * kFile);
  EXPECT_LE(open()->used(), 11 * kFile + 2 * 4096) << "and its own two files";
}

TEST_F(DiskCacheTest, NeverHoldsMoreThanItMay) {
  const DiskCache cache(source_, open(5 * kFile));
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t index = 20; index < 40; ++index) expect_sample(cache, index);
  EXPECT_GE(files().size(), 4U);
  EXPECT_LE(files().size(), 5U);
  EXPECT_EQ(source_->reads, 20 + 20 - static_cast<int>(files().size())) << "cached samples stay cached";
  EXPECT_LE(open(5 * kFile)->used(), 5 * kFile);
  EXPECT_TRUE(cache.counts().full);
  EXPECT_EQ(cache.counts().misses, static_cast<std::uint64_t>(source_->reads));
  EXPECT_EQ(cache.counts().write_errors, 0U);
}

TEST_F(DiskCacheTest, SharesItsRoomWithOtherServers) {
  const DiskCache one(source_, open(10 * kFile)), two(std::make_shared<Counted>(99), open(10 * kFile));
  std::thread other([&] {
    Sample sample;
    for (std::uint64_t index = 20; index < 60; ++index) ASSERT_TRUE(two.read(index, sample));
  });
  for (std::uint64_t index = 20; index < 60; ++index) expect_sample(one, index);
  other.join();
  EXPECT_GE(files().size(), 9U);
  EXPECT_LE(files().size(), 10U);
}

TEST_F(DiskCacheTest, TellsDatasetsApart) {
  const auto other = std::make_shared<Counted>(99);
  const auto folder = open();
  const DiskCache one(source_, folder), two(other, folder);
  expect_sample(one, 5);
  expect_sample(two, 5);
  EXPECT_EQ(other->reads, 1);
}

TEST_F(DiskCacheTest, RereadsDamagedTruncatedAndForeignFiles) {
  const auto folder = open();
  const DiskCache cache(source_, folder);
  expect_sample(cache, 7);
  const fs::path file = files().at(0);
  const std::string good = bytes_of(file);
  expect_sample(cache, 8);
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  std::string other = good;
  for (const fs::path& one : files())
    if (one != file) other = bytes_of(one);
  int reads = source_->reads;
  for (const std::string& bad : {flipped, good.substr(0, good.size() - 8), good.substr(0, 3), std::string(),
                                 good + good, std::string(100'000, 'x'), other}) {
    const std::uint64_t used = folder->used();
    write(file, bad);
    expect_sample(cache, 7);
    EXPECT_EQ(source_->reads, ++reads) << "of " << bad.size() << " bytes";
    EXPECT_EQ(bytes_of(file), good) << "kept anew";
    const std::uint64_t more = pages(good.size()) - std::min(pages(bad.size()), pages(good.size()));
    EXPECT_EQ(folder->used(), used + more) << "never too little";
    expect_sample(cache, 7);
    EXPECT_EQ(source_->reads, reads);
  }
  EXPECT_EQ(cache.counts().damaged, 7U);
  EXPECT_EQ(cache.counts().misses, 9U);
  EXPECT_EQ(cache.counts().hits, 7U);
}

TEST_F(DiskCacheTest, HoldsNoMoreThanItMayAlsoWhenItsFilesWereCut) {
  constexpr std::uint64_t kRoom = 20 * std::uint64_t{4096};
  {
    const DiskCache cache(source_, open(kRoom));
    for (std::uint64_t index = 20; index < 50; ++index) expect_sample(cache, index);
  }
  ASSERT_EQ(files().size(), 10U);
  for (const fs::path& file : files()) write(file, "");  // as after a power cut
  const auto folder = open(kRoom);
  const DiskCache cache(source_, folder);
  for (std::uint64_t index = 50; index-- > 20;) expect_sample(cache, index);
  std::uint64_t bytes = 0;
  for (const fs::path& file : files()) bytes += pages(fs::file_size(file));
  EXPECT_LE(bytes, kRoom);
  EXPECT_GE(bytes, kRoom - 2 * pages(kBytes)) << "filled again";
  EXPECT_LE(folder->used(), kRoom);
}

TEST_F(DiskCacheTest, AddsNoMoreOnceTheDiskRefused) {
  const auto folder = open();
  const DiskCache cache(source_, folder);
  write(path() / fmt::format("{:016x}", source_->fingerprint()), "no folder");
  for (int i = 0; i < 2; ++i) expect_sample(cache, 7);
  EXPECT_EQ(source_->reads, 2);
  EXPECT_EQ(cache.counts().write_errors, 1U);
  EXPECT_TRUE(cache.counts().full);
}

TEST_F(DiskCacheTest, ReadsThroughWhatStandsInItsWay) {
  const auto folder = open();
  const DiskCache cache(source_, folder);
  expect_sample(cache, 7);
  const fs::path file = files().at(0);
  fs::remove(file);
  fs::create_directory(file);
  expect_sample(cache, 7);
  fs::remove(file);
  fs::create_symlink("/etc/hostname", file);
  expect_sample(cache, 7);
  EXPECT_EQ(source_->reads, 3);
}

TEST_F(DiskCacheTest, SweepsAndCountsWhatAKilledServerLeft) {
  {
    const DiskCache cache(source_, open());
    expect_sample(cache, 7);
  }
  const std::uint64_t used = open()->used();
  const fs::path left = files().at(0).string() + ".99.1.tmp";
  write(left, std::string(50'000, 'x'));
  write(path() / "count", "garbage!");
  EXPECT_EQ(open()->used(), used);
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(DiskCacheTest, DoesNotTouchWhatAnotherServerWrites) {
  const auto folder = open();
  const DiskCache cache(source_, folder);
  expect_sample(cache, 7);
  const fs::path half = files().at(0).string() + ".99.1.tmp";
  write(half, "half");
  const auto second = open();
  EXPECT_TRUE(fs::exists(half)) << "the first one is at work";
  EXPECT_EQ(second->used(), folder->used());
}

TEST_F(DiskCacheTest, KeepsNoErrors) {
  const DiskCache cache(source_, open());
  for (int i = 0; i < 2; ++i) {
    const auto read = cache.read(13, sample_);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, "sample 13: no disk");
  }
  EXPECT_EQ(source_->reads, 2);
  EXPECT_TRUE(files().empty());
}

TEST_F(DiskCacheTest, RefusesAFolderThatCannotBeUsed) {
  write(folder_.path() / "file", "x");
  const auto opened = CacheFolder::open(folder_.path() / "file" / "cache", 1'000'000);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(opened.error().message,
              HasSubstr("file/cache: cannot be made: Not a directory; give a folder"));
}

/// A source with two fields, the second of which cannot be read.
class HalfBroken final : public ForwardingSource {
 public:
  HalfBroken() : ForwardingSource(server::source::make_synthetic(3, kBytes).value()) {
    fields_ = ForwardingSource::fields();
    fields_.push_back(fields_.front());
  }
  [[nodiscard]] const std::vector<server::source::SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    return read_fields(index, server::source::FieldSet::all(), out);
  }
  Result<void> read_fields(std::uint64_t index, server::source::FieldSet wanted, Sample& out) const override {
    if (wanted.has(1)) return fail(ErrorCode::kBadSample, "above the size limit");
    return ForwardingSource::read(index, out);
  }

 private:
  std::vector<server::source::SourceField> fields_;
};

TEST_F(DiskCacheTest, GivesTheWantedFieldOfASampleThatCannotBeReadWhole) {
  const DiskCache cache(std::make_shared<HalfBroken>(), open());
  server::source::FieldSet first;
  first.add(0);
  EXPECT_FALSE(cache.read(2, sample_));
  EXPECT_TRUE(cache.read_fields(2, first, sample_));
  EXPECT_EQ(sample_.items[0].bytes.size(), kBytes);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace headrace::testing
