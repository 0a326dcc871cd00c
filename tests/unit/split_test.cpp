#include "server/source/combine/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "server/source/formats/image_folder.h"
#include "server/source/formats/synthetic.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class SplitTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"set/cat/1.jpg", "set/cat/2.jpg", "set/dog/1.jpg", "set/emu/1.jpg", "set/emu/2.jpg"})
      folder_.put(name, name);
    whole_ = open_image_folder(root_ / "set").value();
  }
  fs::path list(const std::string& name, const std::string& content) const {
    return folder_.put(name, content);
  }
  Error refused(const Split& how) const {
    const auto parts = split(whole_, how);
    EXPECT_FALSE(parts);
    return parts ? Error{} : parts.error();
  }
  TempFolder folder_;
  const fs::path root_ = folder_.path();
  std::shared_ptr<const Source> whole_;
};

std::vector<std::string> names(const Source& source) {
  std::vector<std::string> out;
  for (std::uint64_t i = 0; i < source.size(); ++i) out.push_back(source.name(i));
  return out;
}

TEST_F(SplitTest, ByClassKeepsLabelsAndIndicesOfTheWhole) {
  const auto parts = split(whole_, SplitClasses{{{"train", {"emu", "dog"}}, {"val", {"cat"}}}});
  ASSERT_TRUE(parts) << parts.error().message;
  const auto& train = *parts->at("train");
  EXPECT_THAT(names(train), ElementsAre("dog/1.jpg", "emu/1.jpg", "emu/2.jpg"));
  EXPECT_EQ(train.label(0), 1);
  EXPECT_EQ(train.whole_index(0), 2U);
  EXPECT_EQ(train.class_names(), whole_->class_names());
  Sample out;
  ASSERT_TRUE(train.read(2, out));
  EXPECT_EQ(std::string(out.item(0).bytes.begin(), out.item(0).bytes.end()), "set/emu/2.jpg");
  EXPECT_THAT(names(*parts->at("val")), ElementsAre("cat/1.jpg", "cat/2.jpg"));
}

TEST_F(SplitTest, NamesAnUnknownClass) {
  const auto error = refused(SplitClasses{{{"train", {"cow"}}}});
  EXPECT_EQ(error.code, ErrorCode::kConfigInvalid);
  EXPECT_THAT(error.message,
              HasSubstr("part \"train\" names class \"cow\", which does not exist; classes: cat, dog, emu"));
}

TEST_F(SplitTest, NamesAClassInTwoParts) {
  EXPECT_THAT(refused(SplitClasses{{{"train", {"cat"}}, {"val", {"dog", "cat"}}}}).message,
              HasSubstr("class \"cat\" is in two parts, \"train\" and \"val\""));
}

TEST_F(SplitTest, ByListsTakesThePathsOfEachFile) {
  const auto parts = split(whole_, SplitLists{{{"train", list("t.txt", "emu/1.jpg\r\n\n./cat/2.jpg\n")},
                                               {"val", list("v.txt", "dog/1.jpg")}}});
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_THAT(names(*parts->at("train")), ElementsAre("cat/2.jpg", "emu/1.jpg"));
  EXPECT_THAT(names(*parts->at("val")), ElementsAre("dog/1.jpg"));
}

TEST_F(SplitTest, NamesEveryWrongLineOfTheLists) {
  const auto t = list("t.txt", "cat/1.jpg\ncat/9.jpg\ncat/1.jpg\n");
  const auto v = list("v.txt", "\ncat/1.jpg\n../cat/2.jpg\n");
  const auto error = refused(SplitLists{{{"train", t}, {"val", v}}});
  EXPECT_EQ(error.code, ErrorCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr("t.txt:2: \"cat/9.jpg\" is not in the source"));
  EXPECT_THAT(error.message, HasSubstr("t.txt:3: \"cat/1.jpg\" was listed before, at " + t.string() + ":1"));
  EXPECT_THAT(error.message, HasSubstr("v.txt:2: \"cat/1.jpg\" was listed before, at " + t.string() + ":1"));
  EXPECT_THAT(error.message, HasSubstr("v.txt:3: \"../cat/2.jpg\" is not in the source"));
}

TEST_F(SplitTest, NamesAListThatIsNotThere) {
  EXPECT_THAT(refused(SplitLists{{{"train", root_ / "no.txt"}}}).message,
              HasSubstr("no.txt: the list of part \"train\" cannot be read: No such file"));
}

TEST_F(SplitTest, RefusesFractionsThatDoNotFit) {
  EXPECT_THAT(refused(SplitFractions{{{"a", 0.7}, {"b", 0.4}}, 0}).message, HasSubstr("more than 1"));
  EXPECT_THAT(refused(SplitFractions{{{"a", 0.0}}, 0}).message, HasSubstr("must be above 0"));
  EXPECT_THAT(refused(SplitFractions{{{"a", -0.5}}, 0}).message, HasSubstr("must be above 0"));
}

TEST_F(SplitTest, NamesAPartWithoutSamples) {
  const auto error = refused(SplitFractions{{{"train", 0.98}, {"val", 0.02}}, 0});
  EXPECT_EQ(error.code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(error.message, HasSubstr("part \"val\" has no samples (the source has 5)"));
}

TEST_F(SplitTest, FingerprintsTellPartsAndSeedsApart) {
  const auto whole = make_synthetic(1000, 1).value();
  const auto one = split(whole, SplitFractions{{{"a", 0.5}, {"b", 0.5}}, 1}).value();
  const auto again = split(whole, SplitFractions{{{"a", 0.5}, {"b", 0.5}}, 1}).value();
  const auto two = split(whole, SplitFractions{{{"a", 0.5}, {"b", 0.5}}, 2}).value();
  EXPECT_EQ(one.at("a")->fingerprint(), again.at("a")->fingerprint());
  EXPECT_NE(one.at("a")->fingerprint(), one.at("b")->fingerprint());
  EXPECT_NE(one.at("a")->fingerprint(), two.at("a")->fingerprint());
  EXPECT_NE(one.at("a")->fingerprint(), whole->fingerprint());
}

}  // namespace
}  // namespace headrace::server::source
