// The codec of a packed database's records, also over bytes that are not records.
#include "server/store/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>

namespace headrace::server::store {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using Buffer = std::vector<std::uint8_t>;

Buffer noise(std::size_t size) {
  std::mt19937 random(7);
  Buffer bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

/// A file of noise, 40 x 30 RGB pixels of one color, and no bytes at all.
struct Content {
  Buffer file = noise(1001);
  Buffer pixels = Buffer(std::size_t{3} * 40 * 30, 77);
  std::vector<RecordField> fields{
      {file}, {pixels, {.width = 40, .height = 30, .channels = 3, .planar = true}}, {{}, {.width = 0}, true}};

  Buffer encoded(Compression how) const {
    Buffer scratch, out;
    encode({41, -5, "cat/1.jpg", false, fields}, how, scratch, out);
    return out;
  }
};

class EveryCompression : public testing::TestWithParam<Compression> {};

TEST_P(EveryCompression, WhatWasPutInComesOut) {
  const Content content;
  const Buffer bytes = content.encoded(GetParam());
  ASSERT_EQ(bytes.size() % 8, 0u);
  const auto view = RecordView::of(bytes, 41, 3);
  ASSERT_TRUE(view) << view.error();
  EXPECT_TRUE(view->sound());
  EXPECT_EQ(view->head().label, -5);
  EXPECT_EQ(view->head().unreadable, 0);
  EXPECT_EQ(view->name(), "cat/1.jpg");
  EXPECT_EQ(view->field(2).undecodable, 1);
  sample::Item item;
  ASSERT_TRUE(view->unpack(0, item));
  EXPECT_THAT(item.bytes, ElementsAreArray(content.file));
  EXPECT_EQ(item.pixels.width, 0);
  ASSERT_TRUE(view->unpack(1, item));
  EXPECT_THAT(item.bytes, ElementsAreArray(content.pixels));
  EXPECT_EQ(item.pixels.width, 40);
  EXPECT_EQ(item.pixels.height, 30);
  EXPECT_EQ(item.pixels.channels, 3);
  EXPECT_TRUE(item.pixels.planar);
  ASSERT_TRUE(view->unpack(2, item));
  EXPECT_TRUE(item.bytes.empty());
}

TEST_P(EveryCompression, WhatDoesNotShrinkIsReadWithoutACopy) {
  const Content content;
  const Buffer bytes = content.encoded(GetParam());
  const auto view = RecordView::of(bytes, 41, 3);
  EXPECT_EQ(view->field(0).compression, 0);
  EXPECT_EQ(view->field(1).compression, static_cast<std::uint8_t>(GetParam()));
  sample::Item item;
  ASSERT_TRUE(view->unpack(0, item));
  EXPECT_GE(item.bytes.data(), bytes.data());
  EXPECT_LT(item.bytes.data(), bytes.data() + bytes.size());
  EXPECT_EQ((item.bytes.data() - bytes.data()) % 8, 0);
  EXPECT_TRUE(item.storage.empty());
}

TEST_P(EveryCompression, EveryCutIsRefused) {
  const Buffer bytes = Content().encoded(GetParam());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Buffer cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(RecordView::of(cut, 41, 3)) << size;
  }
}

/// Changes each byte: the record is refused, or the checksum fails, and all reads stay within bounds.
TEST_P(EveryCompression, EveryChangedByteIsFoundAndReadsWithinBounds) {
  Buffer bytes = Content().encoded(GetParam());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int change : {0x01, 0x80, 0xFF}) {
      bytes[at] ^= static_cast<std::uint8_t>(change);
      if (const auto view = RecordView::of(bytes, 41, 3)) {
        EXPECT_FALSE(view->sound()) << at;
        sample::Item item;
        for (std::size_t f = 0; f < 3; ++f)
          if (view->field(f).bytes < 1'000'000 && view->unpack(f, item))
            std::accumulate(item.bytes.begin(), item.bytes.end(), 0U);
      }
      bytes[at] ^= static_cast<std::uint8_t>(change);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryCompression,
                         testing::Values(Compression::kNone, Compression::kLz4, Compression::kZstd),
                         [](const auto& of) { return std::string(name_of(of.param)); });

TEST(Record, ADamagedHeadIsNamed) {
  const Content content;
  const auto refusal = [](const Buffer& bytes, std::uint64_t index = 41, std::size_t fields = 3) {
    const auto view = RecordView::of(bytes, index, fields);
    return std::string(view ? "accepted" : view.error());
  };
  const Buffer sound = content.encoded(Compression::kNone);
  EXPECT_EQ(refusal(sound), "accepted");
  EXPECT_THAT(refusal(sound, 42), HasSubstr("belongs to another sample"));
  EXPECT_THAT(refusal(sound, 41, 2), HasSubstr("number of fields differs"));
  const auto with_field = [&](std::size_t field, auto change) {
    Buffer bytes = sound;
    FieldHead head;
    std::uint8_t* at = bytes.data() + sizeof(RecordHead) + field * sizeof head;
    std::memcpy(&head, at, sizeof head);
    change(head);
    std::memcpy(at, &head, sizeof head);
    return refusal(bytes);
  };
  EXPECT_THAT(with_field(0, [](FieldHead& f) { f.stored = f.bytes = ~std::uint64_t{0}; }),
              HasSubstr("reaches beyond its end"));
  EXPECT_THAT(with_field(0, [](FieldHead& f) { f.bytes += 1; }), HasSubstr("head is damaged"));
  EXPECT_THAT(with_field(0,
                         [](FieldHead& f) {
                           f.compression = 2;
                           f.bytes = std::uint64_t{1} << 50;
                         }),
              HasSubstr("head is damaged"));
  EXPECT_THAT(with_field(0, [](FieldHead& f) { f.compression = 9; }),
              HasSubstr("compression is not supported"));
  EXPECT_THAT(with_field(0, [](FieldHead& f) { f.channels = 1; }), HasSubstr("head is damaged"));
  EXPECT_THAT(with_field(0, [](FieldHead& f) { f.planar = 1; }), HasSubstr("head is damaged"));
  EXPECT_THAT(with_field(1, [](FieldHead& f) { f.width = 65'535; }),
              HasSubstr("size differs from its head's"));
  EXPECT_THAT(with_field(1, [](FieldHead& f) { f.height = -30; }), HasSubstr("size differs from its head's"));
}

TEST(Compressions, HaveNamesThatReadBack) {
  for (const auto how : {Compression::kNone, Compression::kLz4, Compression::kZstd})
    EXPECT_EQ(compression_from_name(name_of(how)), how);
  EXPECT_FALSE(compression_from_name("gzip"));
}

}  // namespace
}  // namespace headrace::server::store
