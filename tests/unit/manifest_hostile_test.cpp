// Manifests whose cells are not UTF-8, or are nested as no value is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/source/formats/manifest.h"
#include "tests/opened_source.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

using testing::HasSubstr;

class HostileManifest : public testing::Test {
 protected:
  /// The dataset of a manifest with numbers in its column `n`, and text in `path`.
  Opened open(const std::string& name, const std::string& text) const {
    return open_manifest(
        {.path = folder_.put(name, text),
         .fields = {{"n", {.kind = ManifestKind::kRagged}}, {"path", {.kind = ManifestKind::kText}}}});
  }
  TempFolder folder_;
};

TEST_F(HostileManifest, WithCellsThatAreNotUtf8IsRefusedByLine) {
  EXPECT_THAT(
      why_refused(open("x.csv", "n,path\n\xff\xfe,a\n")),
      HasSubstr(
          "x.csv:2: column `n`: \"\xEF\xBF\xBD\xEF\xBF\xBD\" is neither a number nor a list of numbers"));
  EXPECT_THAT(why_refused(open_manifest({.path = folder_.put("y.csv", "path,label\n,\xe9\n")})),
              HasSubstr("y.csv:2"));
}

TEST_F(HostileManifest, NestedTooDeeplyIsRefusedByLine) {
  const std::string open_lists(300'000, '['), close_lists(300'000, ']');
  EXPECT_THAT(why_refused(open("x.csv", "n,path\n\"" + open_lists + "1" + close_lists + "\",a\n")),
              HasSubstr("x.csv:2: column `n`"));
  EXPECT_THAT(why_refused(open("x.jsonl", "{\"n\": " + open_lists + close_lists + ", \"path\": \"a\"}\n")),
              HasSubstr("x.jsonl:1: is not a JSON object"));
  const auto opened = open("y.jsonl", "{\"n\": [[[[1, 2]], 3]], \"path\": \"a\"}\n");
  ASSERT_NE(source_of(opened), nullptr);
  EXPECT_EQ((*opened)->most_values(0, 1), 3U);
}

TEST_F(HostileManifest, ShowsOnlyTheBeginningOfALongCell) {
  const auto why = why_refused(open("x.csv", "n,path\n" + std::string(100'000, 'x') + ",a\n"));
  EXPECT_THAT(why, HasSubstr("xxx... is neither a number"));
  EXPECT_LT(why.size(), 500U);
}

}  // namespace
}  // namespace headrace::server::source
