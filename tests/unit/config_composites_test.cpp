// Sources made of other sources in the configuration: how they are parsed, and errors for all mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/config.h"
#include "server/source/combine/relabel.h"
#include "server/source/combine/repeat.h"
#include "server/source/combine/subset.h"
#include "server/source/combine/zip.h"

namespace headrace::server::config {
namespace {

using source::RelabelOptions, source::RepeatOptions, source::SubsetOptions, source::ZipOptions;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

/// Two sources, one of them with a split, then `lines` (from line 4 on), then a stream over a.
std::string with(const std::string& lines) {
  return "sources:\n"
         "  a: {type: synthetic, count: 9, bytes: 1}\n"
         "  parted: {type: synthetic, count: 9, bytes: 1, split: {fractions: {train: 0.5, val: 0.5}}}\n" +
         lines + "streams: {t: {source: a}}\n";
}

Config sound(const std::string& lines) {
  auto config = parse(with(lines), "/etc/headrace/c.yaml");
  EXPECT_TRUE(config) << config.error().message;
  return config.value_or(Config{});
}

template <class Options>
const Options& options(const Config& config, const std::string& name) {
  return *config.sources.at(name).as<Options>();
}

TEST(ConfigComposites, AreReadWithWhatTheyAreMadeOf) {
  const auto config = sound(R"(
  both: {type: concat, of: [a, parted.train]}
  ten: {type: subset, of: both, first: 10}
  tenth: {type: subset, of: parted.val, fraction: 0.1, seed: 3}
  cats: {type: subset, of: a, classes: [cat, "7"]}
  listed: {type: subset, of: a, list: l.txt}
  numbered: {type: subset, of: a, indices: /i.txt}
  often: {type: repeat, of: a, times: 4}
  wide: {type: zip, of: [a, often], rename: {often: {data: more}}, label: a}
  fewer: {type: relabel, of: a, remap: {wolf: dog, 3: 0}, classes: [dog, "0"]}
)");
  const auto both = config.sources.at("both").made_of();
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[1].name, "parted");
  EXPECT_EQ(both[1].part, "train");
  EXPECT_EQ(options<SubsetOptions>(config, "ten").first, 10U);
  EXPECT_EQ(options<SubsetOptions>(config, "tenth").seed, 3U);
  EXPECT_EQ(options<SubsetOptions>(config, "tenth").fraction, 0.1);
  EXPECT_THAT(options<SubsetOptions>(config, "cats").classes, ElementsAre("cat", "7"));
  EXPECT_EQ(options<SubsetOptions>(config, "listed").list, "/etc/headrace/l.txt");
  EXPECT_EQ(options<SubsetOptions>(config, "numbered").indices, "/i.txt");
  EXPECT_EQ(options<RepeatOptions>(config, "often").times, 4U);
  const auto& wide = options<ZipOptions>(config, "wide");
  EXPECT_EQ(wide.rename.at("often").at("data"), "more");
  EXPECT_EQ(wide.label, "a");
  const auto& fewer = options<RelabelOptions>(config, "fewer");
  EXPECT_THAT(fewer.remap, ElementsAre(Pair("3", "0"), Pair("wolf", "dog")));
  EXPECT_THAT(fewer.classes, ElementsAre("dog", "0"));
}

TEST(ConfigComposites, MayBeSplitWhereNoPartsCanShareASample) {
  sound(R"(
  b: {type: synthetic, count: 9, bytes: 1}
  all: {type: concat, of: [a, b, parted.train], split: {fractions: {x: 0.5, y: 0.5}}}
  again: {type: concat, of: [parted.val, all.x], split: {fractions: {x: 0.5}}}
  some: {type: subset, of: all.y, first: 1, split: {fractions: {x: 0.5}}}
  once: {type: repeat, of: a, times: 1, split: {fractions: {x: 0.5}}}
  wide: {type: zip, of: [a, some.x], split: {fractions: {x: 0.5}}}
)");
}

struct Wrong {
  const char* name;
  std::string lines;
  std::string expected;
};

std::vector<Wrong> cases() {
  std::string deep = "  d0: {type: repeat, of: a, times: 1}\n";
  for (int i = 1; i < 17; ++i)
    deep += "  d" + std::to_string(i) + ": {type: repeat, of: d" + std::to_string(i - 1) + ", times: 1}\n";
  return {
      {"UnknownSource", "  c: {type: concat, of: [a, partd]}\n",
       "x.yaml:4:29: sources.c.of[1]: there is no source \"partd\"; sources: a, c, parted; did you mean "
       "\"parted\"?"},
      {"WholeOfASplit", "  c: {type: repeat, of: parted, times: 2}\n",
       "x.yaml:4:25: sources.c.of: source \"parted\" is split: take parted.train or parted.val"},
      {"UnknownPart", "  c: {type: concat, of: [parted.trian]}\n",
       "x.yaml:4:26: sources.c.of[0]: source \"parted\" has no part \"trian\"; parts: train, val; did you "
       "mean \"parted.train\"?"},
      {"PartOfAWhole", "  c: {type: concat, of: [a.train]}\n",
       "x.yaml:4:26: sources.c.of[0]: source \"a\" has no split, so no part \"train\"; did you mean \"a\"?"},
      {"NoReference", "  c: {type: concat, of: [a/b]}\n",
       "x.yaml:4:26: sources.c.of[0]: \"a/b\" is not the name of a source, or source.part"},
      {"Twice", "  c: {type: concat, of: [a, a]}\n",
       "x.yaml:4:29: sources.c.of[1]: duplicate source \"a\"; a source of type repeat has samples "
       "several times"},
      {"OfItself", "  c: {type: concat, of: [a, c]}\n",
       "x.yaml:4:29: sources.c.of[1]: a source cannot be made of itself: c -> c"},
      {"Cycle",
       "  c: {type: concat, of: [a, d]}\n  d: {type: repeat, of: e, times: 2}\n  e: {type: subset, of: c, "
       "first: 1}\n",
       "x.yaml:6:25: sources.e.of: a source cannot be made of itself: c -> d -> e -> c"},
      {"TooDeep", deep, "x.yaml:20:3: sources.d16: sources are nested 17 deep, expected at most 16"},
      {"NoWay", "  c: {type: subset, of: a}\n",
       "x.yaml:4:3: sources.c: needs one of first, fraction, classes, list, indices"},
      {"TwoWays", "  c: {type: subset, of: a, first: 3, fraction: 0.1}\n",
       "x.yaml:4:3: sources.c: has first and fraction; it takes one of them"},
      {"IndicesInPlace", "  c: {type: subset, of: a, indices: [1, 99]}\n",
       "x.yaml:4:37: sources.c.indices: [1,99] is not the name of a file"},
      {"EmptySubset", "  c: {type: subset, of: a, first: 0}\n",
       "x.yaml:4:35: sources.c.first: 0 is not a whole number from 1 to 1000000000000"},
      {"NothingToRelabel", "  c: {type: relabel, of: a}\n", "x.yaml:4:3: sources.c: needs remap or classes"},
      {"LabelOfNoMember", "  c: {type: zip, of: [a], label: zzz}\n",
       "x.yaml:4:34: sources.c.label: \"zzz\" is none of its members: a"},
      {"RenameOfNoMember", "  c: {type: zip, of: [parted.val], rename: {parted.va: {x: y}}}\n",
       "x.yaml:4:45: sources.c.rename.parted.va: \"parted.va\" is none of its members: parted.val; did you "
       "mean \"parted.val\"?"},
      {"SplitOfCopies",
       "  r: {type: repeat, of: a, times: 2}\n"
       "  c: {type: subset, of: r, first: 3, split: {fractions: {x: 0.5}}}\n",
       "x.yaml:5:38: sources.c.split: two parts could have the same sample: \"r\" repeats \"a\"; split that "
       "instead, and make a source of each part"},
      {"SplitOfWhatOverlaps",
       "  s: {type: subset, of: a, first: 3}\n"
       "  c: {type: concat, of: [a, s], split: {fractions: {x: 0.5}}}\n",
       "x.yaml:5:33: sources.c.split: two parts could have the same sample: \"a\" occurs more than once in "
       "\"c\"; split that instead, and make a source of each part"},
  };
}

class ConfigCompositesWrong : public testing::TestWithParam<Wrong> {};

TEST_P(ConfigCompositesWrong, IsNamedWithItsPlace) {
  std::string said;
  for (const auto& problem : examine(with(GetParam().lines), "x.yaml").problems)
    said += (said.empty() ? "" : "\n") + problem.to_string();
  EXPECT_EQ(said, GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(Each, ConfigCompositesWrong, testing::ValuesIn(cases()),
                         [](const auto& wrong) { return std::string(wrong.param.name); });

TEST(ConfigComposites, MadeOfASourceThatIsWrongItselfGiveNoFurtherProblem) {
  const auto problems = examine(with("  c: {type: concat, of: [a, d], split: {fractions: {x: 0.5}}}\n"
                                     "  d: {type: repeat, of: a, times: 0}\n"),
                                "x.yaml")
                            .problems;
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0].to_string(), HasSubstr("sources.d.times: 0 is not a whole number from 1"));
}

}  // namespace
}  // namespace headrace::server::config
