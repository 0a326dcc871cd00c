#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/config/config.h"
#include "server/source/formats/image_folder.h"
#include "server/transform/op.h"

namespace headrace::server::config {
namespace {

constexpr const char* kYaml =
    "server: {metrics: off}\n"
    "sources: {my-photos: {type: image_folder, path: /data}}\n"
    "streams:\n"
    "  train:\n"
    "    source: my-photos\n"
    "    batch_size: 8\n"
    "    transforms: [random_resized_crop: {size: 8}, random_horizontal_flip]\n";

std::vector<Override> flags(const std::vector<std::string>& settings) {
  std::vector<Override> out;
  for (const auto& setting : settings) out.push_back(parse_flag(setting).value());
  return out;
}

Config sound(const Environment& environment, const std::vector<std::string>& settings = {}) {
  auto config = parse(kYaml, "x.yaml", flags(settings), environment);
  EXPECT_TRUE(config) << config.error().message;
  return config.value_or(Config{});
}

std::string refused(const Environment& environment, const std::vector<std::string>& settings = {}) {
  const auto config = parse(kYaml, "x.yaml", flags(settings), environment);
  EXPECT_FALSE(config);
  return config ? "" : config.error().message;
}

TEST(Overrides, FromTheEnvironmentReachEveryKindOfKey) {
  const auto config = sound({"HEADRACE_SERVER__THREADS=4", "HEADRACE_STREAMS__TRAIN__BATCH_SIZE=32",
                             "HEADRACE_SOURCES__MY_PHOTOS__PATH=/other", "HEADRACE_SERVER__EVICT_AFTER=2s",
                             "HEADRACE_STREAMS__TRAIN__TRANSFORMS__0__RANDOM_RESIZED_CROP__SIZE=[16, 20]",
                             "HEADRACE_STREAMS__TRAIN__RING__PREFETCH=9"});
  EXPECT_EQ(config.server.threads, 4U);
  EXPECT_EQ(config.server.evict_after, std::chrono::seconds(2));
  const auto& train = config.streams.at("train");
  EXPECT_EQ(train.batch_size, 32U);
  EXPECT_EQ(train.ring.prefetch, 9U);
  EXPECT_EQ(train.sharing.max_lag, 9U);
  EXPECT_EQ(config.sources.at("my-photos").as<source::ImageFolderOptions>()->path, "/other");
  EXPECT_EQ(train.plan.chain.transforms[0]->arguments()["size"][1], 20);
}

TEST(Overrides, FromFlagsReachEveryKindOfKey) {
  const auto config =
      sound({}, {"streams.train.batch_size=32", "sources.my-photos.path=/a=b: c",
                 "streams.train.transforms.1.random_horizontal_flip.p=0.25", "streams.train.shuffle=false"});
  const auto& train = config.streams.at("train");
  EXPECT_EQ(train.batch_size, 32U);
  EXPECT_FALSE(train.shuffle);
  EXPECT_EQ(config.sources.at("my-photos").as<source::ImageFolderOptions>()->path, "/a=b: c");
  EXPECT_EQ(train.plan.chain.transforms[1]->arguments()["p"], 0.25);
}

TEST(Overrides, WinOverTheFileAndFlagsOverTheEnvironment) {
  const Environment environment{"HEADRACE_STREAMS__TRAIN__BATCH_SIZE=16"};
  EXPECT_EQ(sound({}).streams.at("train").batch_size, 8U);
  EXPECT_EQ(sound(environment).streams.at("train").batch_size, 16U);
  EXPECT_EQ(sound(environment, {"streams.train.batch_size=32"}).streams.at("train").batch_size, 32U);
  EXPECT_EQ(
      sound({}, {"streams.train.batch_size=1", "streams.train.batch_size=2"}).streams.at("train").batch_size,
      2U);
}

TEST(Overrides, GiveDefaultsWhereNothingElseGivesAValue) {
  const auto defaulted = [](const std::string& server, const Environment& environment,
                            const std::vector<std::string>& settings) {
    auto all = flags(settings);
    for (const char* value : {"server.metrics.port=0", "server.threads=3"}) {
      all.push_back(parse_flag(value, "--default").value());
      all.back().fallback = true;
    }
    const auto config =
        parse(server + "sources: {s: {type: synthetic, count: 4, bytes: 1}}\nstreams: {t: {source: s}}\n",
              "x.yaml", all, environment);
    EXPECT_TRUE(config) << config.error().message;
    return config ? config->server : ServerConfig{};
  };
  EXPECT_EQ(defaulted("", {}, {}).metrics.value().port, 0);
  EXPECT_EQ(defaulted("", {}, {}).threads, 3U);
  EXPECT_EQ(defaulted("server: {threads: 2}\n", {}, {}).threads, 2U);
  EXPECT_EQ(defaulted("server: {threads: 2}\n", {}, {}).metrics.value().port, 0);
  EXPECT_EQ(defaulted("", {"HEADRACE_SERVER__THREADS=4"}, {}).threads, 4U);
  EXPECT_EQ(defaulted("", {}, {"server.threads=5"}).threads, 5U);
  EXPECT_FALSE(defaulted("server: {metrics: off}\n", {}, {}).metrics);
  EXPECT_EQ(parse_flag("nothing", "--default").error().message,
            "--default nothing: must be path=value, as in --default streams.train.batch_size=32");
}

TEST(Overrides, ReplaceAWordByTheMapThatTheyGoThrough) {
  const auto config = sound({"HEADRACE_SERVER__METRICS__PORT=0"});
  ASSERT_TRUE(config.server.metrics);
  EXPECT_EQ(config.server.metrics->port, 0);
}

TEST(Overrides, RemoveWrongValuesOfTheFile) {
  const auto config =
      parse("sources: {s: {type: synthetic, count: -4, bytes: 1}}\nstreams: {t: {source: s}}\n", "x.yaml",
            flags({"sources.s.count=4"}), {});
  EXPECT_TRUE(config) << config.error().message;
}

TEST(Overrides, LeaveVariablesOfOthersAlone) {
  sound({"HEADRACE_ADDRESS=x", "HEADRACE_BUILD=y", "HEADRACE_STRESS=1", "HEADRACE_LOG=debug",
         "HEADRACE_SERVER=x", "PATH__X=3", "SERVER__THREADS=x", "MALFORMED"});
}

TEST(Overrides, NameTheVariableOfAWrongValue) {
  EXPECT_EQ(refused({"HEADRACE_STREAMS__TRAIN__LAST=shrot"}),
            "HEADRACE_STREAMS__TRAIN__LAST: streams.train.last: \"shrot\" is not one of short, pad, drop; "
            "did you mean "
            "\"short\"?");
  EXPECT_EQ(refused({"HEADRACE_SERVER__THREADS=\"4\""}),
            "HEADRACE_SERVER__THREADS: server.threads: \"4\" is not auto, or a whole number from 1 to 4096");
  EXPECT_EQ(refused({"HEADRACE_STREAMS__TRAIN__SHARING__MAX_LAG=9"}),
            "HEADRACE_STREAMS__TRAIN__SHARING__MAX_LAG: streams.train.sharing.max_lag: 9 is more than "
            "ring.prefetch, which "
            "is 4: raise ring.prefetch, or lower max_lag");
}

TEST(Overrides, NameTheFlagOfAWrongValue) {
  EXPECT_EQ(refused({}, {"streams.train.seed=x"}),
            "--set streams.train.seed=x: streams.train.seed: \"x\" is not a whole number from 0 to "
            "9223372036854775807");
  EXPECT_EQ(
      refused({}, {"streams.train.transforms=[1,"}),
      "--set streams.train.transforms=[1,: streams.train.transforms: YAML: end of sequence flow not found");
}

TEST(Overrides, SuggestTheVariableThatWasMeant) {
  constexpr const char* kWhy =
      ": this variable names no key of the configuration: join keys with two underscores, as in "
      "HEADRACE_STREAMS__TRAIN__BATCH_SIZE; did you mean ";
  EXPECT_EQ(refused({"HEADRACE_SERVER_THREADS=4"}),
            std::string("HEADRACE_SERVER_THREADS") + kWhy + "\"HEADRACE_SERVER__THREADS\"?");
  EXPECT_EQ(
      refused({"HEADRACE_STREAMS__TRIAN__BATCH_SIZE=4"}),
      std::string("HEADRACE_STREAMS__TRIAN__BATCH_SIZE") + kWhy + "\"HEADRACE_STREAMS__TRAIN__BATCH_SIZE\"?");
  EXPECT_EQ(refused({"HEADRACE_SOURCES_MY_PHOTOS_PATH=4"}),
            std::string("HEADRACE_SOURCES_MY_PHOTOS_PATH") + kWhy + "\"HEADRACE_SOURCES__MY_PHOTOS__PATH\"?");
}

TEST(Overrides, SuggestTheFlagThatWasMeant) {
  EXPECT_EQ(refused({}, {"streams.train.batchsize=4"}),
            "--set streams.train.batchsize=4: there is no \"streams.train.batchsize\" in the configuration; "
            "did you mean "
            "\"streams.train.batch_size\"?");
  EXPECT_EQ(refused({}, {"batch_size=4"}),
            "--set batch_size=4: there is no \"batch_size\" in the configuration; did you mean "
            "\"streams.train.batch_size\"?");
  EXPECT_EQ(refused({}, {"seed=4"}),
            "--set seed=4: there is no \"seed\" in the configuration; did you mean \"streams.train.seed\"?")
      << "not that of a split";
  EXPECT_EQ(refused({}, {"streams.train.transforms.7.center_crop.size=4"}),
            "--set streams.train.transforms.7.center_crop.size=4: there is no "
            "\"streams.train.transforms.7.center_crop.size\" in the configuration: the last item of "
            "streams.train.transforms is 1");
  EXPECT_EQ(
      refused({"HEADRACE_STREAMS__TRAIN__TRANSFORMS__7__CENTER_CROP__SIZE=4"}),
      "HEADRACE_STREAMS__TRAIN__TRANSFORMS__7__CENTER_CROP__SIZE: there is no such item: the last item of "
      "streams.train.transforms is 1");
}

TEST(Overrides, NameAMissingItemOrStream) {
  EXPECT_EQ(refused({}, {"streams.train.transforms.-1.random_horizontal_flip.p=1"}),
            "--set streams.train.transforms.-1.random_horizontal_flip.p=1: there is no "
            "\"streams.train.transforms.-1.random_horizontal_flip.p\" in the configuration: the last item of "
            "streams.train.transforms is 1");
  EXPECT_THAT(refused({}, {"streams.validation.source=my-photos"}),
              testing::StartsWith("--set streams.validation.source=my-photos: there is no "
                                  "\"streams.validation.source\" in the configuration (--set cannot add a "
                                  "source or stream: declare it in the file)"));
}

TEST(Overrides, AreNamedWithAProblemThatTheyMayHaveCaused) {
  // The problem is reported at a key of the file; the flag is the cause.
  const auto config = parse(
      "sources: {s: {type: synthetic, count: 4, bytes: 1}}\n"
      "streams: {t: {source: s, sharing: {max_lag: 4}}, other: {source: s}}\n",
      "x.yaml", flags({"streams.t.ring.prefetch=3", "streams.other.seed=1"}), {});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message,
            "x.yaml:2:45: streams.t.sharing.max_lag: 4 is more than ring.prefetch, which is 3: raise "
            "ring.prefetch, or lower max_lag (overrides in effect: --set streams.t.ring.prefetch=3)");
}

TEST(Overrides, FlagsNeedAPathAndAValue) {
  for (const char* wrong : {"", "streams.train", "=3"}) {
    const auto flag = parse_flag(wrong);
    ASSERT_FALSE(flag) << wrong;
    EXPECT_EQ(flag.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(flag.error().message, testing::HasSubstr("must be path=value"));
  }
}

}  // namespace
}  // namespace headrace::server::config
