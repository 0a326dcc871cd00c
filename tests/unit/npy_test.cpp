// numpy arrays: .npy and .npz files, and the dataset of them.
#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "server/source/formats/npy.h"
#include "tests/opened_source.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string npy(const std::string& dict, const std::string& values, int version = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  const std::string header = dict + "\n";
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) out += static_cast<char>(header.size() >> (8 * i));
  return out + header + values;
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& values) {
  return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", values);
}

/// 0, 1, 2, ... as T.
template <class T>
std::string counted(std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    const T value = static_cast<T>(i);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return out;
}

void write_npz(const fs::path& path, const std::vector<std::pair<std::string, std::string>>& arrays,
               bool compressed) {
  ::archive* zip = ::archive_write_new();
  ::archive_write_set_format_zip(zip);
  compressed ? ::archive_write_zip_set_compression_deflate(zip)
             : ::archive_write_zip_set_compression_store(zip);
  ASSERT_EQ(::archive_write_open_filename(zip, path.c_str()), ARCHIVE_OK);
  for (const auto& [name, content] : arrays) {
    ::archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_pathname(entry, (name + ".npy").c_str());
    ::archive_entry_set_filetype(entry, AE_IFREG);
    ::archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    EXPECT_EQ(::archive_write_header(zip, entry), ARCHIVE_OK) << ::archive_error_string(zip);
    ::archive_write_data(zip, content.data(), content.size());
    ::archive_entry_free(entry);
  }
  EXPECT_EQ(::archive_write_free(zip), ARCHIVE_OK);
}

class NpyTest : public testing::Test {
 protected:
  NpyTest() {
    options_.files["image"] = folder_.put("images.npy", images_);
    options_.files["label"] = folder_.put("labels.npy", labels_);
    options_.files["vector"] = folder_.put("vectors.npy", vectors_);
  }
  [[nodiscard]] std::shared_ptr<const Source> open() const { return source_of(open_npy_set(options_)); }
  [[nodiscard]] std::string refusal() const { return why_refused(open_npy_set(options_)); }
  /// The refusal with another file for `vector`.
  [[nodiscard]] std::string refusal_of(const std::string& file) const {
    folder_.put("vectors.npy", file);
    return refusal();
  }
  void use_npz(bool compressed) {
    options_.files.clear();
    options_.npz = folder_.path() / "set.npz";
    write_npz(options_.npz, {{"image", images_}, {"label", labels_}, {"vector", vectors_}}, compressed);
  }

  TempFolder folder_;
  NpyOptions options_;
  const std::string images_ = npy("|u1", "(5, 2, 3)", counted<std::uint8_t>(30));
  const std::string labels_ = npy("<i8", "(5,)", counted<std::int64_t>(5));
  const std::string vectors_ = npy("<f4", "(5, 2)", counted<float>(10));
};

TEST_F(NpyTest, RowsAreSpansOfTheMappedFiles) {
  const auto source = open();
  ASSERT_EQ(source->size(), 5u);
  ASSERT_EQ(source->fields().size(), 2u);
  const SourceField& image = source->fields()[0];
  EXPECT_EQ(image.name, "image");
  EXPECT_EQ(image.content, Content::kPixels);
  EXPECT_EQ(image.channels, 1);
  EXPECT_EQ(image.height, 2);
  EXPECT_EQ(image.width, 3);
  const SourceField& vector = source->fields()[1];
  EXPECT_EQ(vector.name, "vector");
  EXPECT_EQ(vector.content, Content::kValues);
  EXPECT_EQ(vector.dtype, DType::kFloat32);
  EXPECT_THAT(vector.shape, ElementsAre(2));
  Sample sample;
  ASSERT_TRUE(source->read(3, sample));
  EXPECT_THAT(sample.items[0].bytes, ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_TRUE(sample.items[0].storage.empty()) << "it was copied";
  float values[2] = {};
  std::memcpy(values, sample.items[1].bytes.data(), sizeof values);
  EXPECT_THAT(values, ElementsAre(6, 7));
  EXPECT_TRUE(source->labelled());
  EXPECT_EQ(source->label(4), 4);
  EXPECT_EQ(source->class_names().size(), 5u);
  EXPECT_EQ(source->name(3), "images#3");
}

TEST_F(NpyTest, AnNpzIsTheSameSetPlainOrCompressed) {
  const auto files = open();
  for (const bool compressed : {false, true}) {
    use_npz(compressed);
    const auto source = open();
    ASSERT_TRUE(source);
    EXPECT_EQ(source->fingerprint(), files->fingerprint());
    Sample sample;
    ASSERT_TRUE(source->read(4, sample));
    EXPECT_THAT(sample.items[0].bytes, ElementsAre(24, 25, 26, 27, 28, 29));
    EXPECT_EQ(source->label(2), 2);
  }
  options_.arrays = {{"v", "vector"}};
  EXPECT_EQ(open()->fields().at(0).name, "v");
  EXPECT_FALSE(open()->labelled());
  EXPECT_EQ(open()->label(0), 0);
}

TEST_F(NpyTest, ImagesAreKnownByTheirShapes) {
  const auto shape = [](std::vector<std::uint64_t> dims, DType dtype = DType::kUInt8) {
    const auto found = pixel_shape({.dtype = dtype, .shape = std::move(dims)});
    if (!found) return std::vector<int>{};
    return std::vector<int>{found->height, found->width, found->channels, found->planar ? 1 : 0};
  };
  EXPECT_THAT(shape({9, 28, 30}), ElementsAre(28, 30, 1, 0));
  EXPECT_THAT(shape({9, 28, 30, 1}), ElementsAre(28, 30, 1, 0));
  EXPECT_THAT(shape({9, 28, 30, 3}), ElementsAre(28, 30, 3, 0));
  EXPECT_THAT(shape({9, 3, 28, 30}), ElementsAre(28, 30, 3, 1));
  EXPECT_THAT(shape({9, 1, 28, 30}), ElementsAre(28, 30, 1, 1));
  EXPECT_THAT(shape({9, 3, 30, 3}), ElementsAre(3, 30, 3, 0)) << "channels last where both fit";
  for (const auto& dims :
       std::vector<std::vector<std::uint64_t>>{{9, 28}, {9, 28, 30, 2}, {9, 2, 2, 2, 3}, {9, 70000, 2}})
    EXPECT_TRUE(shape(dims).empty());
  EXPECT_TRUE(shape({9, 28, 30}, DType::kFloat32).empty());
}

TEST_F(NpyTest, FieldsAreImagesIfTheyAreNamedSo) {
  options_.files["other"] = folder_.put("other.npy", npy("|u1", "(5, 3, 2, 2)", counted<std::uint8_t>(60)));
  EXPECT_EQ(open()->fields().at(1).content, Content::kValues);
  options_.images = {"other", "image"};
  const auto source = open();
  EXPECT_EQ(source->fields().at(0).name, "other");
  EXPECT_EQ(source->fields().at(0).content, Content::kPixels);
  Sample sample;
  ASSERT_TRUE(source->read(0, sample));
  EXPECT_TRUE(sample.items[0].pixels.planar);
  options_.images = {"vector"};
  EXPECT_THAT(
      refusal(),
      HasSubstr(
          "vectors.npy: expected images, uint8 of (n, h, w), (n, h, w, 1 or 3) or (n, 1 or 3, h, w); found "
          "float32 of (5, 2)"));
  options_.images = {"imgae"};
  EXPECT_THAT(refusal(), HasSubstr("`images` names \"imgae\", which is not a field"));
  options_.images.emplace();
  EXPECT_EQ(open()->fields().at(0).content, Content::kValues);
}

TEST_F(NpyTest, EveryDtypeAndVersionThatFieldsCarryIsRead) {
  const std::vector<std::pair<std::string, DType>> kinds{
      {"|u1", DType::kUInt8}, {"|i1", DType::kInt8},    {"<i2", DType::kInt16},   {"<i4", DType::kInt32},
      {"<i8", DType::kInt64}, {"<f2", DType::kFloat16}, {"<f4", DType::kFloat32}, {"<f8", DType::kFloat64},
      {"|b1", DType::kBool},  {">i1", DType::kInt8}};
  for (const auto& [descr, dtype] : kinds)
    for (const int version : {1, 2, 3}) {
      const std::string dict = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (5,)}";
      folder_.put("vectors.npy", npy(dict, std::string(5 * size_of(dtype), '\1'), version));
      EXPECT_EQ(open()->fields().at(1).dtype, dtype);
      EXPECT_TRUE(open()->fields().at(1).shape.empty());
    }
}

TEST_F(NpyTest, WhatIsWrongWithAFileIsSaidByFile) {
  const std::string values = counted<float>(10);
  const auto dict = [](const std::string& text) { return npy(text, ""); };
  EXPECT_THAT(
      refusal_of(vectors_.substr(0, vectors_.size() - 1)),
      HasSubstr(
          "vectors.npy: its header says (5, 2) of float32 = 40 bytes, but 39 bytes follow; it is truncated"));
  EXPECT_THAT(refusal_of(vectors_ + "x"), HasSubstr("but 41 bytes follow; save it again"));
  EXPECT_THAT(refusal_of(vectors_.substr(0, 30)), HasSubstr("is truncated within its header"));
  EXPECT_THAT(refusal_of(vectors_.substr(0, 8)), HasSubstr("is not an .npy file"));
  EXPECT_THAT(refusal_of("hello, world"), HasSubstr("is not an .npy file"));
  EXPECT_THAT(refusal_of(""), HasSubstr("is empty"));
  EXPECT_THAT(refusal_of(npy("{}", "", 4)), HasSubstr("is of .npy version 4.0"));
  EXPECT_THAT(refusal_of(dict(std::string(3000, ' '))), HasSubstr("has a header of 3001 bytes"));
  EXPECT_THAT(refusal_of(dict("[1]")), HasSubstr("is no dict of descr, fortran_order and shape"));
  EXPECT_THAT(refusal_of(dict("{'descr': '<f4', 'fortran_order': False}")), HasSubstr("is no dict"));
  EXPECT_THAT(refusal_of(dict("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (5,)}")),
              HasSubstr("is an array of records"));
  EXPECT_THAT(refusal_of(npy("|O", "(5,)", "x")), HasSubstr("holds Python objects (pickled)"));
  EXPECT_THAT(refusal_of(npy(">f4", "(5, 2)", values)),
              HasSubstr("is big-endian (\">f4\"); save array.astype("));
  EXPECT_THAT(refusal_of(npy("<u4", "(5, 2)", values)), HasSubstr("dtype \"<u4\" is not supported"));
  EXPECT_THAT(refusal_of(npy("<U9", "(5,)", values)), HasSubstr("is not supported"));
  EXPECT_THAT(refusal_of(npy("float", "(5,)", values)), HasSubstr("is not understood"));
  EXPECT_THAT(refusal_of(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (5, 2)}", values)),
              HasSubstr("is in Fortran order; save np.ascontiguousarray(array)"));
  EXPECT_THAT(refusal_of(npy("<f4", "(5, 4611686018427387904, 16)", values)), HasSubstr("shape is invalid"));
  EXPECT_THAT(refusal_of(npy("<f4", "(99999999999999999999,)", values)), HasSubstr("shape is invalid"));
  fs::remove(folder_.path() / "vectors.npy");
  EXPECT_THAT(refusal(), HasSubstr("vectors.npy: No such file"));
  options_.files["vector"] = folder_.path();
  EXPECT_THAT(refusal(), HasSubstr("is not a regular file"));
}

TEST_F(NpyTest, ArraysThatMakeNoSetAreNamed) {
  EXPECT_THAT(refusal_of(npy("<f4", "(4, 2)", counted<float>(8))),
              AllOf(HasSubstr("vectors.npy: has 4 samples (its first dimension), but "),
                    HasSubstr("images.npy has 5")));
  EXPECT_THAT(refusal_of(npy("<f4", "()", counted<float>(1))),
              HasSubstr("is one number without a dimension"));
  EXPECT_THAT(refusal_of(npy("<f4", "(5, 0)", "")), HasSubstr("has an empty dimension, (5, 0)"));
  EXPECT_THAT(refusal_of(npy("<f4", "(5, 1, 1, 1, 1, 1, 1, 1)", counted<float>(5))),
              HasSubstr("has 8 dimensions"));
  options_.files = {{"Vector", folder_.put("v.npy", vectors_)}};
  EXPECT_THAT(refusal(), HasSubstr("a field cannot be called \"Vector\""));
  options_.files = {{"valid", folder_.put("v.npy", vectors_)}};
  EXPECT_THAT(refusal(), HasSubstr("a field cannot be called \"valid\", which each batch has"));
  options_.files = {{"vector", folder_.put("v.npy", npy("<f4", "(0, 2)", ""))}};
  EXPECT_THAT(refusal(), HasSubstr("v.npy: has no samples"));
  options_.files = {{"label", folder_.path() / "labels.npy"}};
  EXPECT_THAT(refusal(), HasSubstr("labels.npy: is the only field"));
}

TEST_F(NpyTest, LabelsAreClassesOrRefused) {
  const auto refusal_of_labels = [&](const std::string& file) {
    folder_.put("labels.npy", file);
    return refusal();
  };
  EXPECT_THAT(
      refusal_of_labels(npy("<f4", "(5,)", counted<float>(5))),
      HasSubstr("labels.npy: is (5,) of float32: the field `label` is the class, one integer per sample"));
  EXPECT_THAT(refusal_of_labels(npy("<i4", "(5, 1)", counted<std::int32_t>(5))),
              HasSubstr("is (5, 1) of int32"));
  EXPECT_THAT(refusal_of_labels(npy("|i1", "(5,)", std::string("\0\1\xff\0\0", 5))),
              HasSubstr("value 2 is -1"));
  EXPECT_THAT(refusal_of_labels(npy("<i4", "(5,)", std::string(20, '\1'))),
              HasSubstr("value 0 is 16843009; without `classes`"));
  options_.classes = {"a", "b", "c", "d"};
  EXPECT_THAT(refusal_of_labels(labels_), HasSubstr("value 4 is 4, which has no class: `classes` names 4"));
  options_.classes.emplace_back("e");
  EXPECT_THAT(open()->class_names(), ElementsAre("a", "b", "c", "d", "e"));
  options_.files.erase("label");
  EXPECT_THAT(refusal(), HasSubstr("`classes` are named, but there is no field `label`"));
}

TEST_F(NpyTest, TheFingerprintKnowsNamesShapesLabelsAndValues) {
  const auto before = open()->fingerprint();
  folder_.put("vectors.npy", npy("<f4", "(5, 2, 1)", counted<float>(10)));
  EXPECT_NE(open()->fingerprint(), before);
  folder_.put("vectors.npy", npy("<f4", "(5, 2)", counted<float>(9) + "abcd"));
  EXPECT_NE(open()->fingerprint(), before);
  folder_.put("vectors.npy", vectors_);
  EXPECT_EQ(open()->fingerprint(), before);
  folder_.put("labels.npy", npy("<i8", "(5,)", counted<std::int64_t>(4) + std::string(8, '\0')));
  EXPECT_NE(open()->fingerprint(), before);
}

TEST_F(NpyTest, BrokenNpzFilesAreNamed) {
  use_npz(true);
  options_.arrays = {{"image", "images"}};
  EXPECT_THAT(refusal(), HasSubstr("set.npz: holds no array \"images\"; it holds image, label, vector"));
  options_.arrays.clear();
  folder_.put("set.npz", "no zip file at all");
  EXPECT_THAT(refusal(), HasSubstr("set.npz: is not an .npz file"));
  const auto fields = [&](const std::string& name, const std::string& content, bool compressed) {
    write_npz(options_.npz, {{name, content}}, compressed);
    return refusal();
  };
  EXPECT_THAT(fields("X", vectors_, false), HasSubstr("give it another name in `fields`, as in {image: X}"));
  EXPECT_THAT(fields("v", "text", true), HasSubstr("set.npz, array \"v\": is not an .npy file"));
  EXPECT_THAT(fields("v", vectors_ + "x", true), HasSubstr("array \"v\": its header says (5, 2)"));
  EXPECT_THAT(fields("v", vectors_.substr(0, vectors_.size() - 3), true), HasSubstr("it is truncated"));
  EXPECT_THAT(fields("v", vectors_.substr(0, vectors_.size() - 3), false), HasSubstr("it is truncated"));
  EXPECT_THAT(fields("v", npy("<f4", "(100000000000,)", "abcd"), true), HasSubstr("more than a file of"));
}

TEST_F(NpyTest, NoDamageToAnNpzCrashes) {
  for (const bool compressed : {false, true}) {
    use_npz(compressed);
    std::ifstream file(options_.npz, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(file), {}};
    for (std::size_t at = 0; at < whole.size(); at += 3) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0xFF);
      folder_.put("set.npz", damaged);
      const auto source = open_npy_set(options_);
      Sample sample;
      for (std::uint64_t i = 0; source && i < (*source)->size(); ++i) EXPECT_TRUE((*source)->read(i, sample));
      folder_.put("set.npz", whole.substr(0, at));
      static_cast<void>(open_npy_set(options_));
    }
  }
}

}  // namespace
}  // namespace headrace::server::source
