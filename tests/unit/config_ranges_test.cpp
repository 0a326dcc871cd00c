// Arguments of transforms outside of their ranges are refused by the schema, each with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/config.h"

namespace headrace::server::config {
namespace {

std::string refused(const std::string& transform) {
  const auto config = parse(
      "sources: {f: {type: image_folder, path: /data}}\n"
      "streams: {t: {source: f, transforms: [center_crop: {size: 8}, " +
          transform + "]}}\n",
      "x.yaml", {}, {});
  return config ? "" : config.error().message;
}

TEST(ConfigRanges, OfTransformsAreKept) {
  const std::pair<const char*, const char*> wrong[] = {
      {"random_horizontal_flip: {p: 1.5}", "random_horizontal_flip.p: 1.5 is not a number from 0 to 1"},
      {"color_jitter: {brightness: 1, p: 2}", "color_jitter.p: 2 is not a number from 0 to 1"},
      {"random_grayscale: {p: -1}", "random_grayscale.p: -1 is not a number from 0 to 1"},
      {"rand_augment: {num_ops: 17}", "rand_augment.num_ops: 17 is not a whole number from 0 to 16"},
      {"trivial_augment_wide: {num_magnitude_bins: 1}",
       "trivial_augment_wide.num_magnitude_bins: 1 is not a whole number from 2 to 1000"},
      {"center_crop: {size: [0, 4]}", "center_crop.size[0]: 0 is not a whole number from 1 to 16384"}};
  for (const auto& [transform, message] : wrong)
    EXPECT_THAT(refused(transform), testing::HasSubstr(std::string("streams.t.transforms[1].") + message));
}

}  // namespace
}  // namespace headrace::server::config
