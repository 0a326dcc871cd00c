// The cache `encoded`: the same bytes, read once.
#include "server/cache/encoded_source.h"

#include <gtest/gtest.h>

#include <atomic>

#include "server/source/combine/concat.h"
#include "server/source/combine/split.h"
#include "server/source/formats/image_folder.h"
#include "server/source/formats/paired_folders.h"
#include "tests/forwarding_source.h"
#include "tests/numbers_source.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

using server::cache::Arena;
using server::cache::keep_encoded;
using server::source::Sample;
using server::source::Source;

class Counting final : public ForwardingSource {
 public:
  using ForwardingSource::ForwardingSource;
  Result<void> read(std::uint64_t index, Sample& out) const override {
    ++reads;
    if (index == failing) return fail(ErrorCode::kTransientIo, "dog/5.jpg: Input/output error after 3 tries");
    if (index == too_large) return fail(ErrorCode::kBadSample, "dog/6.jpg: above the size limit");
    return ForwardingSource::read(index, out);
  }
  mutable std::atomic<int> reads{0};
  std::uint64_t failing = UINT64_MAX, too_large = UINT64_MAX;
};

std::string jpeg(std::uint32_t seed) {
  const auto file = pixels::make_jpeg({.width = 30, .height = 20, .seed = seed});
  return {file.begin(), file.end()};
}

class EncodedSource : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < 10; ++i)
      folder_.put((i < 4 ? "cat/" : "dog/") + std::to_string(i) + ".jpg", jpeg(i));
    folder_.put("dog/empty.jpg", "");
    real_ = std::make_shared<Counting>(server::source::open_image_folder(folder_.path()).value());
  }
  std::shared_ptr<const Source> keep(std::uint64_t budget) {
    arena_ = Arena::create("source `s`, cache.encoded", budget).value();
    return keep_encoded(real_, arena_);
  }
  static std::vector<std::uint8_t> bytes_of(const Source& source, std::uint64_t index, Sample& sample) {
    const auto done = source.read(index, sample);
    EXPECT_TRUE(done) << done.error().message;
    return {sample.items[0].bytes.begin(), sample.items[0].bytes.end()};
  }

  TempFolder folder_;
  std::shared_ptr<Counting> real_;
  std::shared_ptr<Arena> arena_;
};

TEST_F(EncodedSource, ReadsEachSampleOnceAndGivesItsBytesFromThenOn) {
  const auto source = keep(1 << 20);
  Sample sample, plain;
  for (int epoch = 0; epoch < 3; ++epoch)
    for (std::uint64_t i = 0; i < source->size(); ++i)
      EXPECT_EQ(bytes_of(*source, i, sample),
                bytes_of(*server::source::open_image_folder(folder_.path()).value(), i, plain));
  EXPECT_EQ(real_->reads, 11);
  EXPECT_EQ(arena_->counts().hits, 22U);
  EXPECT_EQ(arena_->counts().misses, 11U);
  bytes_of(*source, 2, sample);
  const auto* const place = sample.items[0].bytes.data();
  Sample other;
  bytes_of(*source, 2, other);
  EXPECT_EQ(other.items[0].bytes.data(), place) << "a hit copies nothing";
}

TEST_F(EncodedSource, IsOtherwiseTheSourceThatItKeeps) {
  const auto source = keep(1 << 20);
  EXPECT_EQ(source->size(), 11U);
  EXPECT_EQ(source->fingerprint(), real_->fingerprint());
  EXPECT_EQ(source->class_names(), real_->class_names());
  EXPECT_EQ(source->name(5), "dog/5.jpg");
  EXPECT_EQ(source->label(5), 1);
  EXPECT_TRUE(source->labelled());
  EXPECT_EQ(&source->whole(), source.get());
  EXPECT_EQ(source->whole_index(7), 7U);
}

TEST_F(EncodedSource, ReadsOnWhatHasNoRoom) {
  const auto source = keep(2048);  // some of eleven
  Sample sample;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::uint64_t i = 0; i < source->size(); ++i) bytes_of(*source, i, sample);
  const auto counts = arena_->counts();
  EXPECT_GT(counts.samples, 0U);
  EXPECT_LT(counts.samples, 11U);
  EXPECT_EQ(counts.hits, counts.samples) << "in the second epoch";
  EXPECT_EQ(real_->reads, 22 - static_cast<int>(counts.hits));
  EXPECT_LE(arena_->used(), 2048U);
}

TEST_F(EncodedSource, FailsEachTimeWithTheSameError) {
  real_->failing = 5;
  real_->too_large = 6;
  const auto source = keep(1 << 20);
  Sample sample;
  for (int i = 0; i < 3; ++i) {
    const auto failed = source->read(5, sample);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::kTransientIo);
    EXPECT_EQ(failed.error().message, "dog/5.jpg: Input/output error after 3 tries");
    const auto refused = source->read(6, sample);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kBadSample);
  }
  EXPECT_EQ(real_->reads, 6);
  real_->failing = UINT64_MAX;
  EXPECT_EQ(bytes_of(*source, 5, sample).size(), jpeg(5).size()) << "the storage works again";
  EXPECT_EQ(arena_->counts().samples, 1U);
}

TEST_F(EncodedSource, IsOneForThePartsOfASplit) {
  const auto source = keep(1 << 20);
  const auto parts = server::source::split(
      source, server::source::SplitFractions{.parts = {{"train", 0.6}, {"val", 0.4}}, .seed = 1});
  ASSERT_TRUE(parts);
  Sample sample;
  for (const auto& [name, part] : *parts)
    for (std::uint64_t i = 0; i < part->size(); ++i) bytes_of(*part, i, sample);
  EXPECT_EQ(real_->reads, 11);
  for (std::uint64_t i = 0; i < source->size(); ++i) bytes_of(*source, i, sample);
  EXPECT_EQ(real_->reads, 11);
}

TEST_F(EncodedSource, KeepsAllFieldsOfASample) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    folder_.put("hr/" + std::to_string(i) + ".jpg", jpeg(i));
    folder_.put("lr/" + std::to_string(i) + ".jpg", jpeg(i + 10));
  }
  const auto pairs = server::source::open_paired_folders(
      {{"hr", {.path = folder_.path() / "hr"}}, {"lr", {.path = folder_.path() / "lr"}}});
  ASSERT_TRUE(pairs) << pairs.error().message;
  const auto counting = std::make_shared<Counting>(*pairs);
  const auto source = keep_encoded(counting, Arena::create("a", 1 << 20).value());
  Sample sample;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(source->read(i, sample));
      const auto text = [&](std::size_t f) {
        return std::string(sample.items[f].bytes.begin(), sample.items[f].bytes.end());
      };
      EXPECT_EQ(text(0), jpeg(i));
      EXPECT_EQ(text(1), jpeg(i + 10));
    }
  }
  EXPECT_EQ(counting->reads, 3);
}

TEST_F(EncodedSource, KeepsOnlyTheFieldsThatStreamsRead) {
  const auto numbers =
      std::make_shared<Numbers>(NumbersOptions{.count = 4, .classes = {}, .fields = {"a", "b", "c"}});
  const auto arena = Arena::create("a", 1 << 20).value();
  const auto source = keep_encoded(numbers, arena);
  const auto swapped =
      std::make_shared<Numbers>(NumbersOptions{.count = 4, .classes = {}, .fields = {"c", "b", "a"}});
  const auto both = server::source::concat({{"one", source}, {"other", swapped}}).value();
  const auto of = [](std::initializer_list<std::size_t> fields) {
    server::source::FieldSet set;
    for (const std::size_t field : fields) set.add(field);
    return set;
  };
  const auto reads = [&](server::source::FieldSet wanted, std::uint8_t first) {
    Sample sample;
    const std::uint64_t before = numbers->items_read;
    EXPECT_TRUE(source->read_fields(3, wanted, sample));
    EXPECT_EQ(sample.items.at(first / 100).bytes[0], 3 + first);
    return numbers->items_read - before;
  };
  both->will_read(of({0}));
  source->will_read(of({2}));
  EXPECT_EQ(reads(of({0}), 0), 2U) << "those of both streams";
  EXPECT_EQ(reads(of({2}), 200), 0U);
  EXPECT_EQ(arena->counts().samples, 1U);
  EXPECT_EQ(reads(of({1}), 100), 1U) << "no stream's field is read as before";
  EXPECT_EQ(reads(server::source::FieldSet::all(), 100), 3U);
  EXPECT_EQ(reads(of({0, 2}), 200), 0U);
}

TEST_F(EncodedSource, GivesTheWantedFieldOfASampleThatCannotBeReadWhole) {
  for (const char* field : {"lr", "hr"}) folder_.put(std::string("pairs/") + field + "/0.jpg", jpeg(1));
  const auto folder = folder_.path() / "pairs";
  const auto pairs =
      server::source::open_paired_folders({{"hr", {.path = folder / "hr"}}, {"lr", {.path = folder / "lr"}}})
          .value();
  std::filesystem::remove(folder / "lr/0.jpg");
  const auto source = keep_encoded(pairs, Arena::create("a", 1 << 20).value());
  server::source::FieldSet hr;
  hr.add(0);
  Sample sample;
  for (int again = 0; again < 2; ++again) {
    EXPECT_FALSE(source->read(0, sample));
    ASSERT_TRUE(source->read_fields(0, hr, sample));
    EXPECT_EQ(std::string(sample.items[0].bytes.begin(), sample.items[0].bytes.end()), jpeg(1));
  }
  folder_.put("pairs/lr/0.jpg", jpeg(1));
  EXPECT_TRUE(source->read(0, sample));
}

}  // namespace
}  // namespace headrace::testing
