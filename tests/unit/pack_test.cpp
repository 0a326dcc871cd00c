// Packing sources: order, bad samples, decoding and resizing for good, stopping.
#include "server/pack/packer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <numeric>

#include "server/decode/jpeg_tiles.h"
#include "server/pack/in_order.h"
#include "server/pack/survey.h"
#include "server/pack/verify.h"
#include "server/source/formats/image_folder.h"
#include "server/source/formats/lmdb.h"
#include "server/transform/ops/ops.h"
#include "server/transform/plan.h"
#include "tests/forwarding_source.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::server::pack {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Buffer = std::vector<std::uint8_t>;
using SourcePtr = std::shared_ptr<const source::Source>;

constexpr int kCount = 12;

/// A folder of JPEGs of growing sizes in two classes.
class PackTest : public ::testing::Test {
 protected:
  PackTest() {
    for (int i = 0; i < kCount; ++i) {
      const auto jpeg = pixels::make_jpeg(
          {.width = 50 + i, .height = 90 - 2 * i, .seed = static_cast<std::uint32_t>(i + 1)});
      put(i, {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
    }
  }
  void put(int i, std::string_view bytes) const {
    folder_.put(fmt::format("images/{}/{:02}.jpg", i < 5 ? "cat" : "dog", i), bytes);
  }
  SourcePtr images() const { return source::open_image_folder(folder_.path() / "images").value(); }
  Result<PackReport> pack(const source::Source& source, const store::Options& how = {}) const {
    return pack::pack(source, out_, {.how = how, .threads = 3, .writer = {.transaction_bytes = 10'000}},
                      stop_, [this](const PackProgress& now) { stop_ = now.done == stop_at_; });
  }
  SourcePtr packed() const {
    const auto opened = source::open_lmdb({out_, true});
    EXPECT_TRUE(opened) << opened.error().message;
    return opened.value_or(nullptr);
  }

  TempFolder folder_;
  const fs::path out_ = folder_.path() / "out.lmdb";
  std::uint64_t stop_at_ = 0;
  mutable std::atomic<bool> stop_{false};
};

/// All of an image's pixels, by a plan that changes nothing.
Buffer decoded(const source::Item& item, std::int32_t channels = 3) {
  decode::Decoder decoder;
  const auto size = decoder.open(item.image(), 1'000'000).value();
  const auto plan = transform::Plan::compile({.output = {DType::kUInt8, transform::PixelLayout::kNhwc},
                                              .input = {size.height, size.width},
                                              .channels = channels})
                        .value();
  Buffer pixels(plan.row_bytes());
  transform::Scratch scratch;
  EXPECT_EQ(plan.render(item.image(), {}, scratch, reinterpret_cast<std::byte*>(pixels.data())).bad,
            decode::BadReason::kNone);
  return pixels;
}

void expect_same_samples(const source::Source& one, const source::Source& other) {
  ASSERT_EQ(one.size(), other.size());
  EXPECT_EQ(one.class_names(), other.class_names());
  source::Sample a, b;
  for (std::uint64_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one.name(i), other.name(i));
    EXPECT_EQ(one.label(i), other.label(i));
    ASSERT_TRUE(one.read(i, a));
    ASSERT_TRUE(other.read(i, b));
    EXPECT_THAT(b.item(0).bytes, ::testing::ElementsAreArray(a.item(0).bytes)) << i;
  }
}

TEST_F(PackTest, EncodedIsTheSourceByteForByte) {
  const auto source = images();
  for (const auto compression :
       {store::Compression::kNone, store::Compression::kLz4, store::Compression::kZstd}) {
    fs::remove_all(out_);
    const auto report = pack(*source, {.compression = compression});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->packed, 12u);
    EXPECT_EQ(report->undecodable, 0u);
    expect_same_samples(*source, *packed());
    EXPECT_EQ(packed()->fingerprint(), source->fingerprint());
  }
}

TEST_F(PackTest, TiledIsTheSourcePixelForPixelAndSaysWhatBecameOfIt) {
  for (const int i : {2, 8}) {
    const auto jpeg = pixels::make_jpeg({.width = 190 + i, .height = 70, .progressive = i == 8});
    put(i, {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
  }
  put(3, "no image");
  const auto source = images();
  const auto report = pack(*source, {.storing = store::Storing::kTiled});
  ASSERT_TRUE(report) << report.error().message;
  const auto files = [&report](decode::Tiling tiling) {
    return report->tiling.files.at(static_cast<std::size_t>(tiling));
  };
  EXPECT_EQ(files(decode::Tiling::kTiled), 2u);
  EXPECT_EQ(files(decode::Tiling::kSmall), 9u);
  EXPECT_EQ(files(decode::Tiling::kNoJpeg), 1u);
  EXPECT_EQ(report->undecodable, 1u);
  EXPECT_THAT(report->first_undecodable, ElementsAre(HasSubstr("cat/03.jpg: unknown_format (")));
  const auto set = packed();
  EXPECT_EQ(set->fingerprint(), source->fingerprint());
  source::Sample a, b;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(source->read(i, a));
    ASSERT_TRUE(set->read(i, b));
    EXPECT_EQ(decode::TileMap::claimed_by(b.item(0).bytes), i == 2 || i == 8);
    if (i == 3) {
      EXPECT_THAT(b.item(0).bytes, ::testing::ElementsAreArray(a.item(0).bytes));
    } else {
      EXPECT_EQ(decoded(b.item(0)), decoded(a.item(0))) << i;
    }
  }
  // An older program would read the padding as pixels, so it must refuse these records.
  EXPECT_THAT(store::inspect(out_)->meta.to_json(), HasSubstr(R"("format":2)"));
}

TEST_F(PackTest, DecodedIsTheDecodersPixels) {
  const auto source = images();
  ASSERT_TRUE(pack(*source, {.storing = store::Storing::kDecoded, .compression = store::Compression::kLz4}));
  const auto set = packed();
  EXPECT_NE(set->fingerprint(), source->fingerprint());
  EXPECT_EQ(set->fields().at(0).content, source::Content::kPixels);
  source::Sample a, b;
  for (std::uint64_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(source->read(i, a));
    ASSERT_TRUE(set->read(i, b));
    EXPECT_EQ(b.item(0).pixels.width, 50 + static_cast<std::int32_t>(i));
    EXPECT_EQ(b.item(0).pixels.height, 90 - 2 * static_cast<std::int32_t>(i));
    EXPECT_THAT(b.item(0).bytes, ::testing::ElementsAreArray(decoded(a.item(0))));
  }
}

TEST_F(PackTest, AResizeIsThatOfThePlanWhetherPixelsOrPngAreStored) {
  const auto source = images();
  const transform::Plan plan =
      transform::Plan::compile({.transforms = {transform::make_op("resize", {{"size", {40, 30}}})},
                                .output = {DType::kUInt8, transform::PixelLayout::kNhwc}})
          .value();
  transform::Scratch scratch;
  for (const auto storing : {store::Storing::kDecoded, store::Storing::kEncoded}) {
    fs::remove_all(out_);
    ASSERT_TRUE(pack(*source, {.storing = storing, .resize = {.height = 40, .width = 30}}));
    const auto set = packed();
    EXPECT_EQ(set->fields().at(0).height, storing == store::Storing::kDecoded ? 40 : 0);
    source::Sample a, b;
    Buffer expected(plan.row_bytes());
    for (std::uint64_t i = 0; i < 12; ++i) {
      ASSERT_TRUE(source->read(i, a));
      ASSERT_TRUE(set->read(i, b));
      plan.render(a.item(0).image(), {}, scratch, reinterpret_cast<std::byte*>(expected.data()));
      EXPECT_THAT(decoded(b.item(0)), ::testing::ElementsAreArray(expected)) << i;
    }
  }
}

TEST_F(PackTest, TheShorterSideIsTorchvisions) {
  ASSERT_TRUE(pack(*images(), {.storing = store::Storing::kDecoded, .resize = {.shorter = 32}}));
  source::Sample sample;
  const auto set = packed();
  ASSERT_TRUE(set->read(0, sample));  // 50 x 90
  EXPECT_EQ(sample.item(0).pixels.width, 32);
  EXPECT_EQ(sample.item(0).pixels.height, 57);
}

TEST_F(PackTest, WhatCannotBeDecodedIsKeptAsItIsAndNamed) {
  put(3, "no image");
  put(7, "");
  const auto source = images();
  const auto report = pack(*source, {.storing = store::Storing::kDecoded});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->undecodable, 2u);
  EXPECT_THAT(report->first_undecodable,
              ElementsAre(HasSubstr("cat/03.jpg: unknown_format ("), HasSubstr("dog/07.jpg: empty (")));
  source::Sample sample;
  const auto set = packed();
  ASSERT_TRUE(set->read(3, sample));
  EXPECT_EQ(sample.item(0).pixels.width, 0);
  EXPECT_EQ(sample.item(0).bytes.size(), 8u);
  const auto store = store::Store::open(out_, store::Store::Reading::kInOrder).value();
  EXPECT_EQ(verify(*store, {.threads = 2, .decode = true}, [](auto, auto) {}).bad, 0u);
}

/// Sample 4 is above the source's limit; sample 9 is indexed elsewhere.
class Odd : public headrace::testing::ForwardingSource {
 public:
  using ForwardingSource::ForwardingSource;
  Result<void> read(std::uint64_t index, source::Sample& out) const override {
    if (index == 4) return fail(ErrorCode::kBadSample, "has too many bytes");
    return ForwardingSource::read(index, out);
  }
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override { return 100 + index; }
};

TEST_F(PackTest, ASampleThatTheSourceCallsBadStaysBad) {
  const Odd source(images());
  const auto report = pack(source);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->first_undecodable, ElementsAre("cat/04.jpg: has too many bytes"));
  source::Sample sample;
  const auto read = packed()->read(4, sample);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kBadSample);
  EXPECT_EQ(packed()->whole_index(9), 109u);
}

class Failing : public headrace::testing::ForwardingSource {
 public:
  using ForwardingSource::ForwardingSource;
  Result<void> read(std::uint64_t index, source::Sample& out) const override {
    if (index == 8) return fail(ErrorCode::kTransientIo, "the disk");
    return ForwardingSource::read(index, out);
  }
};

TEST_F(PackTest, AnErrorOfTheSourceEndsItAndKeepsWhatWasBefore) {
  const auto source = images();
  const auto report = pack(Failing(source));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kTransientIo);
  const auto again = pack(*source);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->before, 8u);
  expect_same_samples(*source, *packed());
}

TEST_F(PackTest, StoppedAndContinuedItIsTheSame) {
  const auto source = images();
  stop_at_ = 5;
  const auto first = pack(*source);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->stopped);
  EXPECT_EQ(first->packed, 5u);
  stop_at_ = 0;
  stop_ = false;
  const auto second = pack(*source);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->before, 5u);
  EXPECT_FALSE(second->stopped);
  expect_same_samples(*source, *packed());
  EXPECT_TRUE(pack(*source)->was_complete);
}

/// Values, ragged values and images, not labelled.
class Mixed : public headrace::testing::ForwardingSource {
 public:
  using ForwardingSource::ForwardingSource;
  [[nodiscard]] const std::vector<source::SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, source::Sample& out) const override {
    for (std::size_t f = 0; f < 2; ++f) {
      out.item(f).own(f == 0 ? 4 : 8 * (index % 5));
      std::fill(out.item(f).storage.begin(), out.item(f).storage.end(), static_cast<std::uint8_t>(index));
    }
    return {};
  }
  [[nodiscard]] bool labelled() const override { return false; }
  [[nodiscard]] std::int64_t label(std::uint64_t) const override { return 0; }

 private:
  const std::vector<source::SourceField> fields_{
      {.name = "weight", .content = source::Content::kValues, .dtype = DType::kFloat32},
      {.name = "boxes", .content = source::Content::kRagged, .dtype = DType::kInt16, .shape = {4}}};
};

TEST_F(PackTest, RaggedFieldsKnowHowManyValuesABatchMayHaveAlsoAfterAStop) {
  const Mixed source(images());
  stop_at_ = 7;
  ASSERT_TRUE(pack(source));
  stop_ = false;
  stop_at_ = 0;
  ASSERT_TRUE(pack(source));
  const auto set = packed();
  EXPECT_FALSE(set->labelled());
  // 0 1 2 3 4 0 1 2 3 4 0 1 values
  EXPECT_EQ(set->most_values(1, 1), 4u);
  EXPECT_EQ(set->most_values(1, 3), 11u);
  EXPECT_EQ(set->most_values(1, 99), 21u);
  source::Sample sample;
  ASSERT_TRUE(set->read(8, sample));
  EXPECT_THAT(sample.item(0).bytes, ElementsAre(8, 8, 8, 8));
  EXPECT_EQ(sample.item(1).bytes.size(), 24u);
}

TEST_F(PackTest, MasksAreNotResized) {
  class Masks : public headrace::testing::ForwardingSource {
   public:
    using ForwardingSource::ForwardingSource;
    [[nodiscard]] const std::vector<source::SourceField>& fields() const override { return fields_; }

   private:
    const std::vector<source::SourceField> fields_{{.name = "mask", .channels = 1, .mask = true}};
  };
  const Masks source(images());
  const auto refused = pack(source, {.resize = {.shorter = 32}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("field `mask` matches another field pixel by pixel"));
  ASSERT_TRUE(pack(source, {.storing = store::Storing::kDecoded}));
  expect_same_samples(source, *packed());
}

TEST_F(PackTest, VerifyFindsOneChangedByteByItsName) {
  ASSERT_TRUE(pack(*images()));
  std::uint64_t place = 0;
  {
    const auto store = store::Store::open(out_, store::Store::Reading::kInOrder).value();
    EXPECT_EQ(verify(*store, {.threads = 2, .decode = true}, [](auto, auto) {}).bad, 0u);
    const auto value = store->value(6);
    std::ifstream file(out_ / "data.mdb", std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(file)), {});
    place = all.find(std::string(reinterpret_cast<const char*>(value.data()), value.size()));
    ASSERT_NE(place, std::string::npos);
  }
  std::fstream(out_ / "data.mdb", std::ios::binary | std::ios::in | std::ios::out)
      .seekp(static_cast<std::streamoff>(place + 300))
      .put('\x5A');
  const auto store = store::Store::open(out_, store::Store::Reading::kInOrder).value();
  const auto report = verify(*store, {.threads = 2}, [](auto, auto) {});
  EXPECT_EQ(report.checked, 12u);
  ASSERT_EQ(report.bad, 1u);
  EXPECT_EQ(report.first.at(0).index, 6u);
  EXPECT_THAT(report.first.at(0).what, HasSubstr("dog/06.jpg: its checksum is wrong"));
}

TEST_F(PackTest, ASurveyOfTheDatabaseIsThatOfItsSource) {
  const auto source = images();
  ASSERT_TRUE(pack(*source, {.compression = store::Compression::kZstd}));
  const auto store = store::Store::open(out_, store::Store::Reading::kInOrder).value();
  const auto a = survey(*source, 2, [](auto, auto) {}).value();
  const auto b = survey(*store, 2, [](auto, auto) {}).value();
  EXPECT_EQ(a.samples, 12u);
  EXPECT_EQ(a.per_label, (std::map<std::int64_t, std::uint64_t>{{0, 5}, {1, 7}}));
  EXPECT_EQ(b.per_label, a.per_label);
  EXPECT_GT(a.fields.at(0).least, 0u);
  EXPECT_EQ(b.fields.at(0).total, a.fields.at(0).total);
  EXPECT_EQ(b.fields.at(0).least, a.fields.at(0).least);
  EXPECT_EQ(b.fields.at(0).most, a.fields.at(0).most);
  EXPECT_GT(b.fields.at(0).stored, 0u);
}

TEST_F(PackTest, ATruncatedDatabaseIsNeitherSurveyedNorVerified) {
  ASSERT_TRUE(pack(*images()));
  const auto source = packed();
  const auto store = store::Store::open(out_, store::Store::Reading::kInOrder).value();
  ASSERT_TRUE(contact_sheet(*source));
  fs::resize_file(out_ / "data.mdb", 3 * 4096);
  const auto ignore = [](auto, auto) {};
  const auto of_source = survey(*source, 2, ignore), of_store = survey(*store, 2, ignore);
  const auto sheet = contact_sheet(*source);
  const auto verified = verify(*store, {.threads = 2}, ignore).lost;
  ASSERT_FALSE(of_source);
  ASSERT_FALSE(of_store);
  ASSERT_FALSE(sheet);
  ASSERT_TRUE(verified);
  for (const Error& error : {of_source.error(), of_store.error(), sheet.error(), *verified})
    EXPECT_THAT(error.message, HasSubstr("cannot be read: the file was truncated"));
}

TEST(InOrder, GivesThingsInOrderAndStopsEverybody) {
  InOrder<std::uint64_t> middle(10, 500, 100, 20);
  const ThreadGroup group(4, [&] {
    while (const auto number = middle.claim()) middle.put(*number, 1 + *number % 50, *number * 2);
  });
  for (std::uint64_t i = 10; i < 400; ++i) ASSERT_EQ(middle.take(), i * 2);
  middle.stop();
  EXPECT_FALSE(middle.take());
}

}  // namespace
}  // namespace headrace::server::pack
