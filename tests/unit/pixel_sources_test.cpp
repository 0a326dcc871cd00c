// IDX and CIFAR files: datasets of small images in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "server/source/formats/cifar.h"
#include "server/source/formats/idx.h"
#include "tests/opened_source.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

using Bytes = std::vector<std::uint8_t>;

void write(const fs::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void write_gz(const fs::path& path, const Bytes& bytes) {
  const gzFile file = ::gzopen(path.c_str(), "wb");
  ASSERT_EQ(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  ::gzclose(file);
}

Bytes idx(const std::vector<std::uint32_t>& dims, const std::function<std::uint8_t(std::size_t)>& value,
          std::uint8_t type = 8) {
  Bytes bytes{0, 0, type, static_cast<std::uint8_t>(dims.size())};
  std::size_t count = 1;
  for (const std::uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(dim >> shift));
    count *= dim;
  }
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(value(i));
  return bytes;
}

class IdxTest : public testing::Test {
 protected:
  IdxTest() {
    write(options_.images, images_);
    write(options_.labels, labels_);
  }
  std::string refusal() const { return why_refused(open_idx(options_)); }

  TempFolder folder_;
  IdxOptions options_{folder_.path() / "images", folder_.path() / "labels", {}};
  // 5 images of 2 rows of 3 pixels, pixel i is i; labels 0 2 1 0 2.
  Bytes images_ = idx({5, 2, 3}, [](std::size_t i) { return static_cast<std::uint8_t>(i); });
  Bytes labels_ = idx({5}, [](std::size_t i) { return Bytes{0, 2, 1, 0, 2}[i]; });
};

TEST_F(IdxTest, ImagesAndLabelsAreThoseOfTheFiles) {
  const auto source = open_idx(options_).value();
  ASSERT_EQ(source->size(), 5u);
  EXPECT_THAT(source->class_names(), ElementsAre("0", "1", "2"));
  const SourceField& field = source->fields().at(0);
  EXPECT_EQ(field.name, "image");
  EXPECT_EQ(field.channels, 1);
  EXPECT_EQ(field.height, 2);
  EXPECT_EQ(field.width, 3);
  Sample sample;
  ASSERT_TRUE(source->read(3, sample));
  EXPECT_THAT(sample.item(0).bytes, ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_EQ(source->label(1), 2);
  EXPECT_EQ(source->name(3), "images#3");
}

TEST_F(IdxTest, GzippedFilesAreTheSameDataset) {
  const auto plain = open_idx(options_).value();
  write_gz(options_.images, images_);
  write_gz(options_.labels, labels_);
  const auto packed = open_idx(options_).value();
  EXPECT_EQ(packed->fingerprint(), plain->fingerprint());
  Sample sample;
  ASSERT_TRUE(packed->read(4, sample));
  EXPECT_THAT(sample.item(0).bytes, ElementsAre(24, 25, 26, 27, 28, 29));
}

TEST_F(IdxTest, TheFingerprintKnowsPixelsAndLabels) {
  const auto before = open_idx(options_).value()->fingerprint();
  images_.back() ^= 1;
  write(options_.images, images_);
  const auto other_pixels = open_idx(options_).value()->fingerprint();
  labels_.back() = 0;
  write(options_.labels, labels_);
  const auto other_labels = open_idx(options_).value()->fingerprint();
  EXPECT_NE(before, other_pixels);
  EXPECT_NE(other_pixels, other_labels);
}

TEST_F(IdxTest, ColorImagesHaveAFourthDimension) {
  write(options_.images, idx({5, 2, 2, 3}, [](std::size_t i) { return static_cast<std::uint8_t>(i); }));
  const auto source = open_idx(options_).value();
  EXPECT_EQ(source->fields().at(0).channels, 3);
  Sample sample;
  ASSERT_TRUE(source->read(1, sample));
  EXPECT_EQ(sample.item(0).bytes.size(), 12u);
  EXPECT_FALSE(sample.item(0).pixels.planar);
}

TEST_F(IdxTest, WhatIsWrongIsSaidByFile) {
  const auto is_refused = [&](const fs::path& path, const Bytes& bytes, const std::string& why) {
    const Bytes before = path == options_.images ? images_ : labels_;
    write(path, bytes);
    EXPECT_THAT(refusal(), HasSubstr(path.string() + ": ")) << why;
    EXPECT_THAT(refusal(), HasSubstr(why));
    write(path, before);
  };
  const auto cut = [](Bytes bytes, std::ptrdiff_t by) {
    bytes.resize(bytes.size() - static_cast<std::size_t>(by));
    return bytes;
  };
  const auto zero = [](std::size_t) { return std::uint8_t{0}; };
  is_refused(options_.images, cut(images_, 1),
             "its header says 5 x 2 x 3 = 30 values, but 29 bytes follow; it is truncated");
  is_refused(options_.images, cut(images_, 35), "is truncated within its header");
  is_refused(options_.images, {1, 2, 3}, "is not an IDX file");
  is_refused(options_.images, {}, "is not an IDX file");
  is_refused(options_.images, idx({5, 2, 3}, zero, 0x0D), "values of IDX type 0x0d");
  is_refused(options_.images, labels_, "expected count x height x width (or x 3), found 1 dimension");
  is_refused(options_.labels, images_, "are images and labels exchanged?");
  is_refused(options_.images, idx({4, 2, 3}, zero),
             "holds 4 images, but " + options_.labels.string() + " holds 5");
  is_refused(options_.images, idx({0, 2, 3}, zero), "holds no image");
  is_refused(options_.images, idx({5, 2, 2, 2}, zero), "2 channels");
  Bytes more = images_;
  more.push_back(0);
  is_refused(options_.images, more, "30 values, but 31 bytes follow; the header does not match the data");
  write_gz(options_.images, images_);
  fs::resize_file(options_.images, fs::file_size(options_.images) - 9);
  EXPECT_THAT(refusal(), HasSubstr("its gzip stream ends early"));
  fs::remove(options_.images);
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  options_.images = folder_.path();
  EXPECT_THAT(refusal(), HasSubstr("is a folder"));
}

TEST_F(IdxTest, ClassesHaveNamesAndALabelWithoutOneIsRefused) {
  options_.classes = {"cat", "dog", "emu"};
  EXPECT_EQ(open_idx(options_).value()->class_names().at(2), "emu");
  options_.classes.pop_back();
  EXPECT_THAT(refusal(), HasSubstr("label 2 of image 1 has no class: `classes` names 2"));
}

class CifarTest : public testing::Test {
 protected:
  /// `count` records: label bytes, then pixels that begin with the record's number.
  void add(const std::string& name, std::size_t count, const Bytes& labels) const {
    Bytes bytes;
    for (std::size_t i = 0; i < count; ++i) {
      bytes.insert(bytes.end(), labels.begin(), labels.end());
      Bytes pixels(3072, static_cast<std::uint8_t>(name.size()));
      pixels[0] = static_cast<std::uint8_t>(i);
      bytes.insert(bytes.end(), pixels.begin(), pixels.end());
    }
    write(options_.path / name, bytes);
  }
  void add_cifar10() const {
    for (int i = 1; i <= 5; ++i)
      add("data_batch_" + std::to_string(i) + ".bin", static_cast<std::size_t>(i),
          {static_cast<std::uint8_t>(i)});
    add("test_batch.bin", 2, {9});
    std::ofstream(options_.path / "batches.meta.txt")
        << "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\n"
           "ship\ntruck\n\n";
  }
  std::string refusal() const { return why_refused(open_cifar(options_)); }

  TempFolder folder_;
  CifarOptions options_{folder_.path()};
};

TEST_F(CifarTest, TheTrainingSetIsFiveFilesInOrder) {
  add_cifar10();
  const auto source = open_cifar(options_).value();
  ASSERT_EQ(source->size(), 15u);
  EXPECT_EQ(source->class_names().at(3), "cat");
  EXPECT_EQ(source->name(0), "data_batch_1.bin#0");
  EXPECT_EQ(source->name(2), "data_batch_2.bin#1");
  EXPECT_EQ(source->name(14), "data_batch_5.bin#4");
  EXPECT_EQ(source->label(2), 2);
  EXPECT_EQ(source->label(14), 5);
  Sample sample;
  ASSERT_TRUE(source->read(14, sample));
  EXPECT_EQ(sample.item(0).bytes.size(), 3072u);
  EXPECT_EQ(sample.item(0).bytes[0], 4);
  EXPECT_TRUE(sample.item(0).pixels.planar);
}

TEST_F(CifarTest, TheTestSetIsItsOwn) {
  add_cifar10();
  const auto train = open_cifar(options_).value()->fingerprint();
  options_.set = CifarSet::kTest;
  const auto source = open_cifar(options_).value();
  EXPECT_EQ(source->size(), 2u);
  EXPECT_EQ(source->label(1), 9);
  EXPECT_NE(source->fingerprint(), train);
}

TEST_F(CifarTest, Cifar100HasFineAndCoarseLabels) {
  add("train.bin", 3, {19, 99});
  add("test.bin", 1, {0, 0});
  const auto fine = open_cifar(options_).value();
  EXPECT_EQ(fine->label(0), 99);
  EXPECT_EQ(fine->class_names().size(), 100u) << "numbers, without the text file";
  options_.labels = CifarLabels::kCoarse;
  const auto coarse = open_cifar(options_).value();
  EXPECT_EQ(coarse->label(0), 19);
  EXPECT_EQ(coarse->class_names().size(), 20u);
  EXPECT_NE(coarse->fingerprint(), fine->fingerprint());
}

TEST_F(CifarTest, WhatIsWrongIsSaidByFile) {
  EXPECT_THAT(refusal(), HasSubstr("holds neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100)"));
  add_cifar10();
  fs::remove(options_.path / "data_batch_3.bin");
  EXPECT_THAT(refusal(), HasSubstr("data_batch_3.bin: No such file"));
  add("data_batch_3.bin", 2, {10});
  EXPECT_THAT(refusal(), HasSubstr("data_batch_3.bin: label 10 of image 0: there are 10 classes"));
  add("data_batch_3.bin", 2, {1});
  fs::resize_file(options_.path / "data_batch_3.bin", 6145);
  EXPECT_THAT(refusal(), HasSubstr("expected a multiple of 3073 bytes (one record), found 6145 bytes"));
  add("train.bin", 1, {0, 0});
  EXPECT_THAT(refusal(), HasSubstr("holds files of CIFAR-10 and of CIFAR-100"));
}

}  // namespace
}  // namespace headrace::server::source
