// A stream's sampler: its parsed values, its part in the plan, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/config/config.h"

namespace headrace::server::config {
namespace {

using testing::HasSubstr;

std::string text(const std::string& stream) {
  return "sources: {f: {type: image_folder, path: /data}}\nstreams:\n  t:\n    source: f\n"
         "    transforms: [center_crop: {size: 8}]\n" +
         stream;  // from line 6 on
}

StreamConfig sound(const std::string& stream) {
  const auto config = parse(text(stream), "/etc/x.yaml");
  EXPECT_TRUE(config) << config.error().message;
  return config ? config->streams.at("t") : StreamConfig{};
}

std::string refused(const std::string& stream) {
  const auto config = parse(text(stream), "x.yaml");
  EXPECT_FALSE(config) << "was accepted:\n" << stream;
  return config ? "" : config.error().message;
}

nlohmann::json plan(const std::string& stream) {
  return canonical(sound(stream));
}

TEST(ConfigSampler, SaysShuffleInOtherWords) {
  EXPECT_TRUE(sound("    sampler: shuffled\n").shuffle);
  EXPECT_FALSE(sound("    sampler: sequential\n").shuffle);
  EXPECT_EQ(plan("    sampler: shuffled\n"), plan(""));
  EXPECT_EQ(plan("    sampler: sequential\n"), plan("    shuffle: false\n"));
  EXPECT_NE(plan("    sampler: sequential\n"), plan(""));
}

TEST(ConfigSampler, LeavesPlansWithoutOneAsTheyWere) {
  EXPECT_EQ(plan("").dump(),
            R"({"max_pixels":178956970,"output":{"dtype":"uint8","layout":"NCHW"},"part":"",)"
            R"("resize_passes":"pillow_13","seed":0,"shuffle":true,)"
            R"("transforms":[{"center_crop":{"size":[8,8]}}],"warnings":"keep"})");
}

TEST(ConfigSampler, ReadsEveryKind) {
  const auto by_class =
      sound("    sampler: {weighted: {by: class, weights: {cat: 2, 7: 0.5}, other: 1, samples: 9}}\n");
  const auto& weighted = std::get<WeightedSampler>(*by_class.sampler);
  EXPECT_EQ(weighted.weights, (std::map<std::string, double>{{"7", 0.5}, {"cat", 2}}));
  EXPECT_EQ(weighted.other, 1);
  EXPECT_EQ(weighted.samples, 9U);
  const auto by_file = sound("    sampler: {weighted: {by: file, path: w.txt}}\n");
  EXPECT_EQ(std::get<WeightedSampler>(*by_file.sampler).path, "/etc/w.txt");
  const auto by_field = sound("    sampler: {weighted: {by: field, field: weight}}\n");
  EXPECT_EQ(std::get<WeightedSampler>(*by_field.sampler).field, "weight");
  for (const char* written : {"balanced", "{balanced: {}}", "{balanced: }"})
    EXPECT_EQ(plan("    sampler: " + std::string(written) + "\n")["sampler"],
              nlohmann::json::parse(R"({"balanced": {"samples": null}})"));
  const auto pk =
      sound("    batch_size: 32\n    sampler: {pk: {p: 8, k: 4, small_classes: repeat, samples: 99}}\n");
  const auto& groups = std::get<PkSampler>(*pk.sampler);
  EXPECT_EQ(groups.classes * 10 + groups.per_class, 84U);
  EXPECT_TRUE(groups.repeat_small);
  EXPECT_EQ(groups.samples, 99U);
  const auto list = sound("    sampler: {list: {path: /l.txt}}\n");
  EXPECT_EQ(std::get<ListSampler>(*list.sampler).path, "/l.txt");
  EXPECT_FALSE(list.shuffle);
  EXPECT_TRUE(sound("    sampler: {list: {path: /l.txt, shuffle: true}}\n").shuffle);
}

TEST(ConfigSampler, EntersThePlanButForPaths) {
  const auto weighted = [](const std::string& arguments) {
    return plan("    sampler: {weighted: {" + arguments + "}}\n");
  };
  EXPECT_NE(plan("    sampler: balanced\n"), plan(""));
  EXPECT_EQ(weighted("by: file, path: a.txt"), weighted("by: file, path: b.txt"));
  EXPECT_NE(weighted("by: file, path: a.txt"), weighted("by: file, path: a.txt, other: 1"));
  EXPECT_NE(weighted("by: file, path: a.txt"), weighted("by: file, path: a.txt, samples: 5"));
  EXPECT_NE(weighted("by: class, weights: {a: 1}"), weighted("by: class, weights: {a: 2}"));
  EXPECT_EQ(weighted("by: class, weights: {a: 1}"), weighted("weights: {a: 1.0}, by: class"));
  EXPECT_NE(weighted("by: field, field: a"), weighted("by: field, field: b"));
  EXPECT_NE(plan("    sampler: {pk: {p: 2, k: 4}}\n"), plan("    sampler: {pk: {p: 4, k: 2}}\n"));
}

struct Wrong {
  const char* name;
  std::string stream, expected;
};

class ConfigSamplerProblems : public testing::TestWithParam<Wrong> {};

TEST_P(ConfigSamplerProblems, AreNamedWithTheirPlace) {
  EXPECT_THAT(refused(GetParam().stream), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigSamplerProblems,
    testing::ValuesIn(std::vector<Wrong>{
        {"Both", "    shuffle: true\n    sampler: shuffled\n",
         "x.yaml:6:5: streams.t.shuffle: `shuffle` is a short form of `sampler`: give only one of them"},
        {"Word", "    sampler: shufled\n",
         "\"shufled\" is not one of sequential, shuffled, balanced, or one "
         "sampler with its arguments, such as {pk: {p: 8, k: 4}}; did you mean \"shuffled\"?"},
        {"WordWithoutArguments", "    sampler: pk\n",
         "x.yaml:6:14: streams.t.sampler: \"pk\" needs p and k: write `sampler: {pk: {p: ..., k: ...}}`"},
        {"TwoSamplers", "    sampler: {balanced: {}, list: {path: x}}\n",
         "a map is not one sampler with its arguments"},
        {"UnknownSampler", "    sampler: {weigthed: {by: class}}\n", "did you mean \"weighted\"?"},
        {"UnknownKey", "    sampler: {balanced: {sample: 5}}\n", "did you mean \"samples\"?"},
        {"NoWay", "    sampler: {weighted: {weights: {a: 1}}}\n", "key \"by\" is missing"},
        {"UnknownWay", "    sampler: {weighted: {by: clas}}\n", "did you mean \"class\"?"},
        {"NoWeights", "    sampler: {weighted: {by: class}}\n",
         "x.yaml:6:15: streams.t.sampler.weighted: key \"weights\" is missing: `by: class` reads the weights "
         "from it"},
        {"NoPath", "    sampler: {weighted: {by: file}}\n", "key \"path\" is missing"},
        {"NoField", "    sampler: {weighted: {by: field}}\n", "key \"field\" is missing"},
        {"PathOfClasses", "    sampler: {weighted: {by: class, weights: {a: 1}, path: x}}\n",
         "streams.t.sampler.weighted.path: has no meaning with `by: class`; leave it out"},
        {"OtherOfAField", "    sampler: {weighted: {by: field, field: x, other: 1}}\n",
         "streams.t.sampler.weighted.other: has no meaning with `by: field`; leave it out"},
        {"NegativeWeight", "    sampler: {weighted: {by: class, weights: {a: -1}}}\n",
         "streams.t.sampler.weighted.weights.a: -1 is not a number of at least 0"},
        {"InfiniteWeight", "    sampler: {weighted: {by: class, weights: {a: .inf}}}\n",
         ".inf is not a finite number"},
        {"ZeroWeights", "    sampler: {weighted: {by: class, weights: {a: 0, b: 0}}}\n",
         "streams.t.sampler.weighted.weights: weights that sum to zero: give a class a larger weight"},
        {"NoSamples", "    sampler: {balanced: {samples: 0}}\n", "0 is not a whole number from 1 to"},
        {"NoP", "    sampler: {pk: {k: 4}}\n", "key \"p\" is missing"},
        {"BatchOfNoWholeGroups", "    batch_size: 48\n    sampler: {pk: {p: 8, k: 4}}\n",
         "x.yaml:6:17: streams.t.batch_size: batches of 48 hold no whole number of groups of p * k = 8 * 4 = "
         "32: make batch_size a multiple of 32"},
        {"DefaultBatchOfNoWholeGroups", "    sampler: {pk: {p: 5, k: 2}}\n",
         "x.yaml:6:15: streams.t.sampler.pk: batches of 64 hold no whole number of groups"},
        {"GroupsCutBetweenRanks", "    delivery: shard\n    sampler: {pk: {p: 8, k: 4}}\n",
         "streams.t.sampler.pk: `last: short` would cut the groups of pk"},
        {"NoList", "    sampler: {list: {}}\n", "key \"path\" is missing"},
    }),
    [](const auto& wrong) { return std::string(wrong.param.name); });

TEST(ConfigSampler, TakesGroupsOnAShardThatCutsNone) {
  for (const char* last : {"drop", "pad"})
    sound("    delivery: shard\n    last: " + std::string(last) + "\n    sampler: {pk: {p: 8, k: 4}}\n");
}

TEST(ConfigSampler, IsSetByFlagsAndVariables) {
  const auto config = parse(text("    batch_size: 6\n"), "x.yaml",
                            std::vector{parse_flag("streams.t.sampler.pk.p=2").value(),
                                        parse_flag("streams.t.sampler.pk.k=3").value()});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(std::get<PkSampler>(*config->streams.at("t").sampler).per_class, 3U);
  const auto word = parse(text(""), "x.yaml", {}, {"HEADRACE_STREAMS__T__SAMPLER=sequential"});
  ASSERT_TRUE(word) << word.error().message;
  EXPECT_FALSE(word->streams.at("t").shuffle);
}

}  // namespace
}  // namespace headrace::server::config
