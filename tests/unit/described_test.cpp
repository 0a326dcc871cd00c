#include "server/described/described.h"

#include <gtest/gtest.h>

#include "server/described/definitions.h"
#include "server/described/units.h"

namespace headrace::server::described {
namespace {

enum class Color : std::uint8_t { kRed, kGreen };

struct Inner {
  std::int32_t depth = 3;

  static Description<Inner> description() {
    return {"inner", "", {key("depth", &Inner::depth, integer<std::int32_t>(1, 9), "How deep.")}};
  }
};

struct Outer {
  std::string title;
  double share = 0.5;
  Color color = Color::kGreen;
  std::optional<std::uint64_t> limit, seed;
  std::vector<std::int32_t> sizes{1, 2};
  std::filesystem::path file = "/nowhere";
  Inner inner;

  static Description<Outer> description() {
    const auto size = named("size", integer<std::int32_t>(0, 100));
    return {
        "outer",
        "Of a test.",
        {required("title", &Outer::title, text()), key("share", &Outer::share, number(0, 1)),
         key("color", &Outer::color, word<Color>({{"red", Color::kRed}, {"green", Color::kGreen}})),
         optional("limit", &Outer::limit, bytes()),
         nullable("seed", &Outer::seed, integer<std::uint64_t>(0, 9)),
         key("sizes", &Outer::sizes, list(size, 1, 3)), without_default(key("file", &Outer::file, path())),
         within(&Outer::inner, key("depth", &Inner::depth, size))}};
  }
};

Outer read(const char* text) {
  return object<Outer>().read(Json::parse(text), Reading("/etc/headrace"));
}

TEST(Described, LeavesWhatIsNotGivenAtTheDefault) {
  const Outer outer = read(R"({"title": "x"})");
  EXPECT_EQ(outer.title, "x");
  EXPECT_EQ(outer.share, 0.5);
  EXPECT_EQ(outer.color, Color::kGreen);
  EXPECT_FALSE(outer.limit);
  EXPECT_EQ(outer.inner.depth, 3);
}

TEST(Described, ReadsEveryKeyAndWritesItInItsCanonicalForm) {
  const Outer outer = read(
      R"({"title": "x", "share": 1, "color": "red", "limit": "1.5 GB", "seed": 4, "sizes": [7], "file": "a/../b",)"
      R"( "depth": 8})");
  EXPECT_EQ(outer.limit, 1'500'000'000U);
  EXPECT_EQ(outer.file, "/etc/headrace/b");
  EXPECT_EQ(outer.inner.depth, 8);
  EXPECT_EQ(write(outer),
            Json::parse(R"({"title": "x", "share": 1.0, "color": "red", "limit": "1500MB", "seed": 4,)"
                        R"( "sizes": [7], "file": "/etc/headrace/b", "depth": 8})"));
}

TEST(Described, WritesNullOnlyForNullableKeysThatAreNotGiven) {
  const Json written = write(read(R"({"title": "x"})"));
  EXPECT_TRUE(written.at("seed").is_null());
  EXPECT_FALSE(written.contains("limit"));
}

TEST(Described, GivesASchemaInTheOrderOfTheKeys) {
  const Schema schema = with_definitions(object<Outer>().schema);
  EXPECT_EQ(schema["required"], Schema({"title"}));
  EXPECT_EQ(schema["properties"].begin().key(), "title");
  EXPECT_EQ(schema["properties"]["share"],
            Schema({{"type", "number"}, {"minimum", 0}, {"maximum", 1}, {"default", 0.5}}));
  EXPECT_EQ(schema["properties"]["depth"], Schema({{"$ref", "#/definitions/size"}, {"default", 3}}));
  EXPECT_EQ(schema["properties"]["sizes"]["items"], Schema({{"$ref", "#/definitions/size"}}));
  EXPECT_FALSE(schema["properties"]["file"].contains("default"));
  EXPECT_EQ(schema["definitions"]["size"]["maximum"], 100);
}

TEST(Described, RefusesTwoSchemasOfOneName) {
  const Schema both{{"a", named("n", integer<int>(0, 1)).schema},
                    {"b", named("n", integer<int>(0, 2)).schema}};
  EXPECT_THROW((void)with_definitions(both), std::logic_error);
}

TEST(Described, LeavesUrlsAsTheyAre) {
  EXPECT_EQ(absolute("/etc", "s3://bucket/a/../b"), "s3://bucket/a/../b");
  EXPECT_EQ(absolute("/etc", "https://host/x"), "https://host/x");
  EXPECT_EQ(absolute("/etc", "a/b://c"), "/etc/a/b:/c");
}

struct Span {
  std::int32_t low = 0, high = 9;

  static Description<Span> description() {
    const auto even = checked<std::int32_t>(integer<std::int32_t>(0, 9),
                                            [](std::int32_t n) { return n % 2 == 0 ? "" : "is odd"; });
    return {"",
            "",
            {key("low", &Span::low, even), key("high", &Span::high, integer<std::int32_t>(0, 9))},
            [](const Span& span, const Json&, const Reading& reading) {
              if (span.low > span.high) reading.wrong("high", "is below low");
            }};
  }
};

std::vector<std::string> faults_of(const char* text, Faults faults = {}) {
  object<Span>().read(Json::parse(text), Reading("/", Pointer("/a"), &faults));
  std::vector<std::string> out;
  for (const auto& fault : faults.all()) out.push_back(fault.at.to_string() + " " + fault.message);
  return out;
}

TEST(Described, ChecksAcrossKeysWhereEachOfThemIsSound) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(faults_of(R"({"low": 2, "high": 3})"), Lines{});
  EXPECT_EQ(faults_of(R"({"low": 4, "high": 3})"), Lines{"/a/high is below low"});
  EXPECT_EQ(faults_of(R"({"low": 5, "high": 3})"), Lines{"/a/low 5 is odd"});
  Faults known;
  known.mark(Pointer("/a/high"));
  EXPECT_EQ(faults_of(R"({"low": 4})", known), Lines{}) << "its `high` is wrong, and was omitted";
}

TEST(Described, TakesAsSoundWhatHasNothingWrongInIt) {
  Faults faults;
  faults.mark(Pointer("/a/b-c/d"));
  EXPECT_FALSE(faults.sound(Pointer("/a")));
  EXPECT_FALSE(faults.sound(Pointer("/a/b-c/d")));
  EXPECT_TRUE(faults.sound(Pointer("/a/b")));
  EXPECT_TRUE(faults.sound(Pointer("/a/b-c/d/e")));
}

}  // namespace
}  // namespace headrace::server::described
