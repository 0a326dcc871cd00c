// Pairs in BasicSR's databases: read from the map without a copy, and refused with named errors.
#include "server/source/formats/basicsr_lmdb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/pictures/png_file.h"
#include "server/source/formats/lmdb.h"
#include "server/source/formats/paired_folders.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using Buffer = std::vector<std::uint8_t>;

Buffer png(std::int32_t side, std::uint8_t value) {
  return pictures::encode_png(Buffer(static_cast<std::size_t>(side * side) * 3, value),
                              {.width = side, .height = side, .channels = 3})
      .value();
}

class BasicSr : public ::testing::Test {
 protected:
  /// Writes any keys and values and, if it is not empty, a list beside them.
  fs::path write(const std::string& name, const std::map<std::string, Buffer>& entries,
                 const std::string& list) const {
    fs::path path = folder_.path() / name;
    fs::create_directories(path);
    const auto env = store::Env::open(path, store::Env::Access::kWrite, std::uint64_t{1} << 24).value();
    auto txn = store::Txn::begin(env, true).value();
    for (const auto& [key, value] : entries) EXPECT_EQ(txn.put(store::bytes_of(key), value), 0);
    EXPECT_EQ(txn.commit(), 0);
    if (!list.empty()) folder_.put(name + "/meta_info.txt", list);
    return path;
  }
  /// `count` images of `side` x `side`, one value each.
  fs::path images(const std::string& name, int count, std::int32_t side) const {
    std::map<std::string, Buffer> entries;
    std::string list;
    for (int i = 0; i < count; ++i) {
      const std::string key = "000" + std::to_string(i) + "_s001";
      entries[key] = png(side, static_cast<std::uint8_t>(i));
      list += key + ".png (" + std::to_string(side) + "," + std::to_string(side) + ",3) 1\n";
    }
    return write(name, entries, list);
  }
  static std::string refused(const std::map<std::string, PairedFolder>& folders) {
    const auto source = open_paired_folders(folders);
    EXPECT_FALSE(source);
    if (source) return "";
    EXPECT_EQ(source.error().code, ErrorCode::kDatasetInvalid);
    return source.error().message;
  }
  TempFolder folder_;
};

TEST_F(BasicSr, PairsAreReadFromTheMapWithTheirScale) {
  const fs::path gt = images("gt.lmdb", 5, 32), lq = images("lq.lmdb", 5, 8);
  const auto source = open_paired_folders({{"gt", {.path = gt}}, {"lq", {.path = lq}}});
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->size(), 5U);
  EXPECT_EQ((*source)->fields()[0].scale, 4);
  EXPECT_EQ((*source)->fields()[1].scale, 1);
  EXPECT_EQ((*source)->name(3), "0003_s001.png");
  Sample out;
  ASSERT_TRUE((*source)->read(3, out));
  EXPECT_TRUE(std::ranges::equal(out.items[0].bytes, png(32, 3)));
  EXPECT_TRUE(std::ranges::equal(out.items[1].bytes, png(8, 3)));
  EXPECT_TRUE(out.items[0].storage.empty()) << "it was copied";
  EXPECT_FALSE(fs::exists(gt / "lock.mdb"));
}

TEST_F(BasicSr, ADatabaseAndAFolderMakePairsAndHaveTheSameFingerprintsAsFolders) {
  const fs::path gt = images("gt.lmdb", 3, 32), lq = images("lq.lmdb", 3, 8);
  for (int i = 0; i < 3; ++i) {
    const std::string name = "000" + std::to_string(i) + "_s001.png";
    const Buffer bytes = png(8, static_cast<std::uint8_t>(i));
    folder_.put("lq/" + name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  const auto databases = open_paired_folders({{"gt", {.path = gt}}, {"lq", {.path = lq}}}).value();
  const auto mixed =
      open_paired_folders({{"gt", {.path = gt}}, {"lq", {.path = folder_.path() / "lq"}}}).value();
  EXPECT_EQ(databases->fingerprint(), mixed->fingerprint());
}

TEST_F(BasicSr, ImagesWithoutPartnerAreNamed) {
  EXPECT_THAT(
      refused({{"gt", {.path = images("gt.lmdb", 3, 32)}}, {"lq", {.path = images("lq.lmdb", 2, 8)}}}),
      AllOf(HasSubstr("have no partner in"),
            EndsWith("(field `lq`): 0002_s001.png; add the partners, or remove these images")));
}

TEST_F(BasicSr, AWrongScaleIsNamedWithBothSizes) {
  const fs::path lq = images("lq.lmdb", 2, 8);
  const fs::path gt = write("gt.lmdb", {{"0000_s001", png(32, 0)}, {"0001_s001", png(24, 1)}},
                            "0000_s001.png (32,32,3) 1\n0001_s001.png (24,24,3) 1\n");
  EXPECT_THAT(refused({{"gt", {.path = gt}}, {"lq", {.path = lq}}}),
              AllOf(HasSubstr("gt.lmdb/0001_s001.png has 24 x 24 pixels and its partner"),
                    HasSubstr("lq.lmdb/0001_s001.png 8 x 8: at scale 4 they do not fit")));
  EXPECT_THAT(
      refused({{"gt", {.path = images("other.lmdb", 2, 32), .scale = 2}}, {"lq", {.path = lq, .scale = 1}}}),
      HasSubstr("0000_s001.png has 32 x 32 pixels and its partner"));
}

TEST_F(BasicSr, ABrokenFirstImageStopsNothingIfALaterOneIsSound) {
  const auto put = [this](const std::string& name, const Buffer& bytes) {
    folder_.put(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  put("gt/0.png", {});
  put("lq/0.png", png(8, 0));
  const PairedFolder gt{.path = folder_.path() / "gt"}, lq{.path = folder_.path() / "lq"};
  EXPECT_THAT(refused({{"gt", gt}, {"lq", lq}}), HasSubstr("gt/0.png: "));
  EXPECT_THAT(refused({{"gt", gt}}), HasSubstr("gt/0.png: "));
  put("gt/1.png", png(32, 1));
  put("lq/1.png", png(8, 1));
  const auto source = open_paired_folders({{"gt", gt}, {"lq", lq}});
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->fields()[0].scale, 4) << "of the second pair";
  EXPECT_TRUE(open_paired_folders({{"gt", gt}}));
}

TEST_F(BasicSr, ForeignDatabasesAreNamedWithWhatToDo) {
  const std::map<std::string, Buffer> datums{{"00000000", {8, 3, 16, 4}}};
  const fs::path caffe = write("caffe", datums, "");
  EXPECT_THAT(refused({{"x", {.path = caffe}}}),
              AllOf(HasSubstr("is an LMDB without meta_info.txt, so not BasicSR's"),
                    HasSubstr("create_lmdb.py, or write the images into a folder")));
  EXPECT_THAT(refused({{"x", {.path = write("odd", datums, "00000000.png (8,8,3) 1\n")}}}),
              HasSubstr("odd/00000000.png: "));
  const auto packed = open_lmdb({.path = images("own.lmdb", 1, 8)});
  EXPECT_THAT(packed ? "" : packed.error().message,
              HasSubstr("read BasicSR's with a source of type paired_folders"));
}

TEST_F(BasicSr, WrongLinesOfTheListAreNamed) {
  const std::map<std::string, Buffer> one{{"a", png(8, 0)}};
  EXPECT_THAT(refused({{"x",
                        {.path = write("wrong", one,
                                       "a.png (8,8,3) 1\nb.png (8,8,3) 1\nc.png 8x8\n\n"
                                       "d.png (8,-8,3) 1\n")}}}),
              AllOf(HasSubstr("meta_info.txt:2: the database has no \"b\""),
                    HasSubstr("meta_info.txt:3: \"c.png 8x8\" is not \"name.png (h,w,c) level\""),
                    HasSubstr("meta_info.txt:5: \"d.png (8,-8,3) 1\" is not")));
  EXPECT_THAT(refused({{"x", {.path = write("twice", one, "a.png (8,8,3) 1\na.png (8,8,3) 1\n")}}}),
              HasSubstr("two files of one name"));
  EXPECT_THAT(refused({{"x", {.path = write("empty", one, "\n")}}}), HasSubstr("lists no image"));
}

TEST_F(BasicSr, AFileTruncatedWhileItsRowsAreAddedIsAnErrorAndNoCrash) {
  const fs::path path = images("cut.lmdb", 2, 8);
  const auto column = BasicSrColumn::open({.name = "x"}, path).value();
  fs::resize_file(path / "data.mdb", 4096);
  (void)column->add("0000_s001.png");
  const auto finished = column->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(finished.error().message, HasSubstr("data.mdb"));
}

TEST_F(BasicSr, WhatTheListDoesNotNameIsAWarning) {
  const fs::path path = write("more.lmdb", {{"a", png(8, 0)}, {"b", png(8, 1)}}, "a.png (8,8,3) 1\n");
  const auto source = open_paired_folders({{"x", {.path = path}}}).value();
  EXPECT_EQ(source->size(), 1U);
  EXPECT_THAT(source->warning(), HasSubstr("holds 1 entries that meta_info.txt does not list"));
}

TEST_F(BasicSr, ADatabaseThatIsCutIsRefused) {
  const fs::path path = images("cut.lmdb", 20, 64);
  fs::resize_file(path / "data.mdb", fs::file_size(path / "data.mdb") / 2);
  EXPECT_THAT(refused({{"x", {.path = path}}}), HasSubstr("is truncated: data.mdb has"));
}

}  // namespace
}  // namespace headrace::server::source
