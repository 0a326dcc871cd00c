// Configurations that are cut off or blow up when they are parsed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/config.h"

namespace headrace::server::config {
namespace {

using testing::HasSubstr;

TEST(Config, SurvivesAliasesThatBlowUpOrHoldThemselves) {
  std::string text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 10; ++i) {
    const auto before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 0; k < 9; ++k) text += ", " + before;
    text += "]\n";
  }
  EXPECT_THAT(parse(text, "x.yaml").error().message, HasSubstr("is too deep or too large"));
  EXPECT_THAT(parse("a: &x [*x]\n", "x.yaml").error().message, HasSubstr("is too deep or too large"));
  EXPECT_THAT(parse("a: &x {<<: *x}\n", "x.yaml").error().code, ErrorCode::kConfigInvalid);
}

TEST(Config, SurvivesMergesThatBlowUp) {
  std::string text = "x0: &x0 {}\n";
  for (int i = 1; i < 30; ++i) text += fmt::format("x{0}: &x{0} {{<<: [*x{1}, *x{1}]}}\n", i, i - 1);
  EXPECT_THAT(parse(text, "x.yaml").error().message, HasSubstr("is too deep or too large"));
}

TEST(Config, SurvivesLongNumbersAndPaths) {
  const std::string digits(500'000, '9'), letters(500'000, 'a');
  const auto stream = [](const std::string& path, const std::string& size) {
    return "sources: {f: {type: image_folder, path: " + path +
           "}}\nstreams: {t: {source: f, batch_size: " + size + "}}\n";
  };
  EXPECT_THAT(parse(stream("/data", digits), "x.yaml").error().message, HasSubstr("is not a finite number"));
  EXPECT_THAT(parse(stream("/data", "0o" + std::string(500'000, '7')), "x.yaml").error().message,
              HasSubstr("is not a finite number"));
  (void)examine(stream(letters, "8"), "x.yaml");
  EXPECT_THAT(parse(stream("ftp://" + letters, "8"), "x.yaml").error().message,
              HasSubstr("expected an http://, https:// or s3:// URL, found ftp://..."));
}

TEST(Config, SurvivesTextThatIsNotUtf8WhereAListIsExpected) {
  const std::string text =
      "sources: {f: {type: image_folder, path: /data}}\n"
      "streams: {t: {source: f, transforms: {center_crop: \"a\xff\"}}}\n";
  EXPECT_THAT(parse(text, "x.yaml").error().message, HasSubstr("streams.t.transforms: a map is not a list"));
}

TEST(Config, SurvivesAPathThatIsNotUtf8) {
  EXPECT_THAT(parse("sources: {f: {type: image_folder, path: \"~/caf\xe9\"}}\n", "x.yaml").error().message,
              HasSubstr("`~` and `$NAME` are not expanded"));
}

TEST(Config, SurvivesAnyPrefixOfASoundText) {
  const std::string text =
      "sources: {f: {type: image_folder, path: /data}}\nstreams:\n  t:\n    source: f\n"
      "    transforms: [random_resized_crop: {size: 8}]\n"
      "    output: {dtype: float32, layout: NHWC}\n    sharing: {wait_for: 2, wait_timeout: '5s'}\n";
  ASSERT_TRUE(parse(text, "x.yaml")) << parse(text, "x.yaml").error().message;
  for (std::size_t n = 0; n < text.size(); ++n) {
    const auto outcome = examine(text.substr(0, n), "x.yaml");
    EXPECT_NE(outcome.config.has_value(), !outcome.problems.empty());
  }
}

}  // namespace
}  // namespace headrace::server::config
