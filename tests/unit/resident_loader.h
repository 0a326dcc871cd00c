// A real server with a small dataset that can be kept in GPU memory, for tests.
#pragma once

#include <fstream>
#include <random>

#include "tests/unit/device_loader.h"

namespace headrace::gpu {

/// CIFAR's files with `count` random pictures.
inline void write_cifar(const std::filesystem::path& folder, std::uint64_t count) {
  std::filesystem::create_directories(folder);
  std::mt19937 random(7);
  for (int file = 1; file <= 5; ++file) {
    std::ofstream out(folder / ("data_batch_" + std::to_string(file) + ".bin"), std::ios::binary);
    const std::uint64_t here =
        count * static_cast<std::uint64_t>(file) / 5 - count * static_cast<std::uint64_t>(file - 1) / 5;
    for (std::uint64_t i = 0; i < here; ++i) {
      out.put(static_cast<char>(random() % 10));
      for (int byte = 0; byte < 3072; ++byte) out.put(static_cast<char>(random()));
    }
  }
}

class ResidentLoaderTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kPictures = 53;

  /// A stream `train` over the set; more of it, in YAML's flow style.
  void serve(const std::string& more = "batch_size: 8") {
    server_.reset();
    const auto set = folder_.path() / "cifar";
    if (!std::filesystem::exists(set)) write_cifar(set, kPictures);
    server_.emplace(directory_, "sources: { c: { type: cifar, path: " + set.string() +
                                    " } }\nstreams: { train: { source: c, residence: gpu, transforms: " +
                                    chain_ + ", output: { dtype: float16 }, " + more + " } }\n");
  }
  [[nodiscard]] Stream open(OpenOptions options = {}) const {
    options.stream = "train";
    return Client::connect({.address = directory_}).value().open(options).value();
  }
  [[nodiscard]] Result<std::unique_ptr<DeviceLoader>> try_load(OpenOptions opening = {},
                                                               DeviceLoaderOptions options = {}) const {
    opening.commits = Commits::kByCaller;
    options.engine.device = "host";
    return DeviceLoader::open(open(std::move(opening)), options);
  }
  [[nodiscard]] std::unique_ptr<DeviceLoader> load(OpenOptions opening = {},
                                                   DeviceLoaderOptions options = {}) const {
    return try_load(std::move(opening), std::move(options)).value();
  }

  TempFolder folder_;
  const std::string directory_ = (folder_.path() / "run").string();
  std::string chain_ =
      "[random_crop: {size: 32, padding: 4}, random_horizontal_flip, "
      "normalize: {mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.2]}]";
  std::optional<RunningServer> server_;
};

/// The rest of the epoch.
template <class Source>
std::vector<Seen> rest_of(Source& source) {
  std::vector<Seen> out;
  for (;;) {
    auto batch = source.next(20s);
    EXPECT_TRUE(batch) << batch.error().to_string();
    if (!batch || !*batch) return out;
    out.push_back(seen(**batch));
  }
}

}  // namespace headrace::gpu
