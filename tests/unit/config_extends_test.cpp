// `extends`: what a stream takes over from another one, and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/config/config.h"
#include "server/transform/op.h"

namespace headrace::server::config {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A stream `train` with most keys, from line 3 to 9, then `streams`, which are indented by two spaces.
std::string with(const std::string& streams) {
  return "sources: {photos: {type: image_folder, path: /data}}\n"
         "streams:\n"
         "  train:\n"
         "    source: photos\n"
         "    seed: 7\n"
         "    sampler: balanced\n"
         "    transforms: [random_resized_crop: {size: 8}, random_horizontal_flip]\n"
         "    ring: {prefetch: 3, max_clients: 2}\n"
         "    output: {dtype: float32, layout: NHWC}\n" +
         streams;
}

Config sound(const std::string& streams, const std::vector<Override>& flags = {}) {
  auto config = parse(with(streams), "x.yaml", flags);
  EXPECT_TRUE(config) << config.error().message;
  return config.value_or(Config{});
}

std::string refused(const std::string& streams) {
  const auto config = parse(with(streams), "x.yaml");
  EXPECT_FALSE(config);
  return config ? "" : config.error().message;
}

TEST(ConfigExtends, TakesEverythingOverThatIsNotGiven) {
  const auto config =
      sound("  large: {extends: train, batch_size: 256, output: {dtype: float16}, ring: {prefetch: 5}}\n");
  const auto& train = config.streams.at("train");
  const auto& large = config.streams.at("large");
  EXPECT_EQ(large.source, "photos");
  EXPECT_EQ(large.seed, 7U);
  EXPECT_EQ(large.batch_size, 256U);
  EXPECT_EQ(train.batch_size, 64U);
  EXPECT_EQ(large.ring.prefetch, 5U);
  EXPECT_EQ(large.ring.max_clients, 2U) << "maps of ring, output and sharing are taken over key by key";
  auto expected = canonical(train);
  expected["output"]["dtype"] = "float16";
  EXPECT_EQ(canonical(large), expected);
}

TEST(ConfigExtends, ReplacesListsAsAWhole) {
  const auto config = sound("  plain: {extends: train, transforms: [random_resized_crop: {size: 9}]}\n");
  const auto& chain = config.streams.at("plain").plan.chain.transforms;
  ASSERT_EQ(chain.size(), 1U);
  EXPECT_EQ(chain[0]->arguments()["size"][0], 9);
  EXPECT_EQ(config.streams.at("train").plan.chain.transforms.size(), 2U);
}

TEST(ConfigExtends, ChainsResolveInAnyOrder) {
  const auto config = sound("  a: {extends: b, batch_size: 2}\n  b: {extends: train, seed: 8}\n");
  EXPECT_EQ(config.streams.at("a").seed, 8U);
  EXPECT_EQ(config.streams.at("a").batch_size, 2U);
  EXPECT_EQ(config.streams.at("a").ring.prefetch, 3U);
}

TEST(ConfigExtends, ShuffleReplacesAnInheritedSampler) {
  const auto config = sound("  val: {extends: train, shuffle: false}\n");
  EXPECT_FALSE(config.streams.at("val").shuffle);
  EXPECT_FALSE(config.streams.at("val").sampler);
}

TEST(ConfigExtends, AnEmptyKeyTakesNothingOver) {
  const auto config = sound("  plain: {extends: train, output: , sampler: }\n");
  EXPECT_FALSE(config.streams.at("plain").sampler);
  auto expected = canonical(config.streams.at("train"));
  EXPECT_NE(canonical(config.streams.at("plain"))["output"], expected["output"]);
}

TEST(ConfigExtends, AnOverrideOfTheOtherStreamCounts) {
  const auto config =
      sound("  large: {extends: train, batch_size: 256}\n", {parse_flag("streams.train.seed=9").value()});
  EXPECT_EQ(config.streams.at("large").seed, 9U);
}

TEST(ConfigExtends, WrongNamesAreReported) {
  EXPECT_EQ(refused("  large: {extends: trian}\n"),
            "x.yaml:10:20: streams.large.extends: there is no stream \"trian\"; streams: train; did you mean "
            "\"train\"?");
  EXPECT_EQ(refused("  large: {extends: [train]}\n"),
            "x.yaml:10:20: streams.large.extends: [\"train\"] is not the name of a stream");
  EXPECT_EQ(refused("  a: {extends: trian}\n  b: {extends: a}\n"),
            "x.yaml:10:16: streams.a.extends: there is no stream \"trian\"; streams: b, train; did you mean "
            "\"train\"?")
      << "reported once";
}

TEST(ConfigExtends, CyclesAreReported) {
  EXPECT_THAT(refused("  a: {extends: b}\n  b: {extends: a}\n"),
              HasSubstr("`extends` forms a cycle: a -> b -> a; remove one"));
  EXPECT_THAT(refused("  a: {extends: a}\n"), HasSubstr("forms a cycle: a -> a"));
}

TEST(ConfigExtends, AnInheritedProblemIsReportedOnceWhereItIs) {
  const auto said = refused("  bad: {source: photos, seed: x}\n  worse: {extends: bad}\n");
  EXPECT_THAT(said, HasSubstr("x.yaml:10:31: streams.bad.seed"));
  EXPECT_THAT(said, Not(HasSubstr("worse")));
}

TEST(ConfigExtends, AStreamWithoutItStillNeedsASource) {
  EXPECT_THAT(refused("  none: {batch_size: 2}\n"), HasSubstr("key \"source\" is missing"));
}

}  // namespace
}  // namespace headrace::server::config
