// `residence: gpu` in a configuration: its parsed values, and its errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/config/config.h"

namespace headrace::server::config {
namespace {

using testing::HasSubstr;

Outcome examined(const std::string& body) {
  return examine("sources: {f: {type: cifar, path: /data}}\nstreams:\n  t:\n    source: f\n" + body,
                 "x.yaml");  // body: line 5
}

TEST(ConfigResidence, IsReadFromItsWord) {
  const auto with = examined("    residence: gpu\n");
  ASSERT_TRUE(with.config) << with.problems.front().to_string();
  EXPECT_TRUE(with.config->streams.at("t").resident);
  EXPECT_FALSE(examined("").config->streams.at("t").resident);
}

TEST(ConfigResidence, ChangesNoFingerprint) {
  const auto with = examined("    residence: gpu\n"), without = examined("");
  EXPECT_EQ(canonical(with.config->streams.at("t")), canonical(without.config->streams.at("t")));
}

TEST(ConfigResidence, TakesCropsFlipsTurnsAndNormalize) {
  const auto outcome = examined(
      "    residence: gpu\n    output: {dtype: float32}\n    transforms:\n"
      "      - resize: {size: [40, 40]}\n      - center_crop: {size: 36}\n"
      "      - random_crop: {size: 32, padding: 4, padding_mode: reflect}\n      - random_horizontal_flip\n"
      "      - random_vertical_flip: {p: 0.1}\n      - random_rotate90\n"
      "      - normalize: {mean: [0.5, 0.5, 0.5], std: [1, 1, 1]}\n");
  EXPECT_TRUE(outcome.config) << outcome.problems.front().to_string();
}

TEST(ConfigResidence, RefusesWhatTheDeviceDoesNotDo) {
  struct Wrong {
    const char *body, *says;
  };
  for (const auto& [body, says] : {
           Wrong{"    residence: cpu\n", "x.yaml:5:16: streams.t.residence: \"cpu\" is not gpu"},
           Wrong{"    residence: gpu\n    sampler: balanced\n",
                 "x.yaml:6:5: streams.t.sampler: with `residence` the device computes the order"},
           Wrong{"    residence: gpu\n    device: gpu\n",
                 "x.yaml:6:5: streams.t.device: with `residence` the device computes every batch"},
           Wrong{"    residence: gpu\n    mix: {cutmix: {}}\n",
                 "x.yaml:6:5: streams.t.mix: with `residence` the device computes rows and cannot mix"},
           Wrong{"    residence: gpu\n    derive: {lr: {from: image, factor: 2}}\n",
                 "x.yaml:6:5: streams.t.derive: a dataset in GPU memory has one image"},
           Wrong{"    residence: gpu\n    transforms:\n      - random_horizontal_flip\n"
                 "      - color_jitter: {hue: 0.1}\n",
                 "x.yaml:8:9: streams.t.transforms[1]: with `residence: gpu` the device only crops, flips, "
                 "rotates by 90 degrees and normalizes: use `device: gpu` instead, or leave"},
           Wrong{"    residence: gpu\n    transforms:\n      - random_horizontal_flip\n"
                 "      - resize: {size: [8, 8]}\n",
                 "x.yaml:8:9: streams.t.transforms[1]: with `residence: gpu` the device cannot resize"},
           Wrong{"    residence: gpu\n    transforms:\n      - random_resized_crop: {size: 8}\n",
                 "x.yaml:7:9: streams.t.transforms[0]: with `residence: gpu` the device cannot resize: use "
                 "`device: gpu` instead, "
                 "with which the server computes this transform, or a resize before all random "
                 "transforms and random_crop"},
           Wrong{"    residence: gpu\n    transforms:\n      - gaussian_blur: {kernel_size: 3}\n",
                 "x.yaml:7:9: streams.t.transforms[0]: with `residence: gpu` the device only crops, flips, "
                 "rotates by "
                 "90 degrees and normalizes: use `device: gpu` instead, with which the server computes "
                 "this transform, or leave `residence` out"},
           Wrong{
               "    residence: gpu\n    output: {dtype: float32}\n    transforms:\n      - random_erasing: "
               "{value: random}\n",
               "x.yaml:8:9: streams.t.transforms[0]: no device draws `value: random`: leave `residence` out"},
       }) {
    const auto outcome = examined(body);
    ASSERT_FALSE(outcome.config) << body;
    ASSERT_EQ(outcome.problems.size(), 1U) << outcome.problems.at(1).to_string();
    EXPECT_THAT(outcome.problems.front().to_string(), HasSubstr(says));
  }
}

}  // namespace
}  // namespace headrace::server::config
