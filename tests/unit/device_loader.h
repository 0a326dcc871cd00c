// A real server's stream through DeviceLoaders, for tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "headrace/device_loader.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"
#include "tests/unit/scripted_device.h"

namespace headrace::gpu {

using namespace std::chrono_literals;

inline constexpr std::uint64_t kSamples = 50;
inline constexpr std::size_t kRow = 1000;

/// The visible content of a batch.
struct Seen {
  std::uint64_t epoch = 0, batch = 0;
  std::vector<std::uint64_t> samples;
  std::vector<std::byte> bytes;
  friend bool operator==(const Seen&, const Seen&) = default;
};

inline Seen seen(const BatchView& batch) {
  Seen out{batch.epoch(), batch.batch(), {}, {}};
  for (const RowInfo& row : batch.all_rows()) out.samples.push_back(row.sample_index);
  for (const FieldSpec& spec : batch.fields()) {
    const FieldView field = batch.field(spec.name).value();
    out.bytes.insert(out.bytes.end(), field.data, field.data + field.bytes());
  }
  return out;
}

inline Seen seen(const DeviceBatch& batch) {
  EXPECT_TRUE(batch.wait().has_value());
  Seen out{batch.epoch(), batch.batch(), {}, {}};
  for (const RowInfo& row : batch.rows()) out.samples.push_back(row.sample_index);
  for (std::size_t f = 0; f < batch.fields().size(); ++f) {
    const DeviceFieldView field = batch.field(f);
    out.bytes.insert(out.bytes.end(), field.data, field.data + field.bytes());
  }
  return out;
}

class DeviceLoaderTest : public testing::Test {
 protected:
  void SetUp() override { serve(); }
  void serve(const std::string& plan = "batch_size: 8, ring: { max_leases: 4, data_access: read_write }") {
    server_.reset();
    server_.emplace(directory_, kSamples, kRow, plan);
  }
  [[nodiscard]] Stream open(OpenOptions options = {}) const {
    options.stream = "train";
    return Client::connect({.address = directory_}).value().open(options).value();
  }
  [[nodiscard]] Stream open_ahead(OpenOptions options = {}) const {
    options.commits = Commits::kByCaller;
    return open(std::move(options));
  }
  [[nodiscard]] std::unique_ptr<DeviceLoader> load(DeviceLoaderOptions options = {},
                                                   OpenOptions opening = {}) const {
    options.engine.device = "host";
    return DeviceLoader::open(open_ahead(std::move(opening)), options).value();
  }
  [[nodiscard]] std::unique_ptr<DeviceLoader> load_on(Script& script,
                                                      DeviceLoaderOptions options = {}) const {
    return std::make_unique<DeviceLoader>(open_ahead(), std::make_shared<ScriptedDevice>(script), options);
  }

  TempFolder folder_;
  const std::string directory_ = folder_.path().string();
  std::optional<RunningServer> server_;
};

inline DeviceBatch next(DeviceLoader& loader) {
  auto batch = loader.next(20s);
  EXPECT_TRUE(batch) << batch.error().to_string();
  return std::move(batch.value().value());
}

/// Waits until `holds`, at most 20 s.
template <class F>
bool comes_true(F holds) {
  for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(5ms))
    if (holds()) return true;
  return false;
}

}  // namespace headrace::gpu
