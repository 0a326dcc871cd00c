// For tests: a real server with two equal streams of images. The device computes the rows of one stream, and
// the server computes those of the other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/resident_loader.h"

namespace headrace::gpu {

class FinishedLoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto set = folder_.path() / "cifar";
    write_cifar(set, 53);
    const std::string plan =
        "{ source: c, batch_size: 8, seed: 3, output: { dtype: float16 }, transforms: [random_crop: {size: "
        "32, padding: 4}, random_horizontal_flip, color_jitter: {brightness: 0.4, contrast: 0.4}, normalize: "
        "{mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.2]}]";
    server_.emplace(directory_, "sources: { c: { type: cifar, path: " + set.string() +
                                    " } }\nstreams: { by_server: " + plan + " }, by_device: " + plan +
                                    ", device: gpu } }\n");
  }
  [[nodiscard]] Stream open(const std::string& stream) const {
    return Client::connect({.address = directory_})
        .value()
        .open({.stream = stream, .commits = Commits::kByCaller, .for_device = true})
        .value();
  }

  TempFolder folder_;
  const std::string directory_ = (folder_.path() / "run").string();
  std::optional<RunningServer> server_;
};

/// Reads all batches of `epochs` epochs.
inline std::vector<Seen> epochs_of(Stream stream, int epochs) {
  std::vector<Seen> out;
  for (int epoch = 0; epoch < epochs; ++epoch)
    while (const auto batch = stream.next(20s).value()) out.push_back(seen(*batch));
  return out;
}

}  // namespace headrace::gpu
