// `random_resized_crop: 224` for `random_resized_crop: {size: 224}`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/config/config.h"
#include "server/transform/op.h"

namespace headrace::server::config {
namespace {

Result<Config> read(const std::string& transforms, const std::vector<Override>& flags = {}) {
  return parse(
      "sources: {s: {type: image_folder, path: /data}}\n"
      "streams:\n"
      "  train:\n"
      "    source: s\n"
      "    transforms: " +
          transforms + "\n",
      "x.yaml", flags, {});
}

nlohmann::json arguments(const std::string& transforms, const std::vector<Override>& flags = {}) {
  const auto config = read(transforms, flags);
  EXPECT_TRUE(config) << config.error().message;
  return config ? config->streams.at("train").plan.chain.transforms.at(0)->arguments() : nlohmann::json();
}

std::string refused(const std::string& transforms) {
  const auto config = read(transforms);
  EXPECT_FALSE(config);
  return config ? "" : config.error().message;
}

TEST(Shorthand, GivesTheOnlyRequiredArgument) {
  EXPECT_EQ(arguments("[random_resized_crop: 224]"), arguments("[random_resized_crop: {size: 224}]"));
  EXPECT_EQ(arguments("[center_crop: [224, 160]]"), arguments("[center_crop: {size: [224, 160]}]"));
  EXPECT_EQ(arguments("[gaussian_blur: 5, center_crop: 64]"),
            arguments("[gaussian_blur: {kernel_size: 5}, center_crop: 64]"));
}

TEST(Shorthand, CanBeOverridden) {
  const auto size = [](const std::string& flag) {
    return arguments("[center_crop: 224]", {parse_flag(flag).value()})["size"];
  };
  EXPECT_EQ(size("streams.train.transforms.0.center_crop.size=32"), (nlohmann::json{32, 32}));
  EXPECT_EQ(size("streams.train.transforms.0.center_crop=32"), (nlohmann::json{32, 32}));
}

TEST(Shorthand, KeepsThePlaceOfAWrongValue) {
  EXPECT_THAT(refused("[center_crop: 0]"),
              testing::StartsWith("x.yaml:5:31: streams.train.transforms[0].center_crop.size: "));
  EXPECT_THAT(refused("[center_crop: [224, wide]]"),
              testing::StartsWith("x.yaml:5:37: streams.train.transforms[0].center_crop.size"));
}

TEST(Shorthand, IsRefusedWhereNoArgumentOrSeveralAreRequired) {
  EXPECT_THAT(refused("[random_horizontal_flip: 0.5, center_crop: 64]"),
              testing::HasSubstr("random_horizontal_flip"));
  EXPECT_THAT(refused("[center_crop: 64, normalize: 0.5]"), testing::HasSubstr("normalize"));
}

}  // namespace
}  // namespace headrace::server::config
