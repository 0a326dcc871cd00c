// Pictures that a real server has left to the device, finished on the twin; and a server that cannot be
// trusted.
#include "clientlib/gpu/picture_finisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <random>

#include "headrace/device_loader.h"
#include "tests/unit/device_loader.h"

namespace headrace::gpu {
namespace {

using ::testing::HasSubstr;

class PictureFinisherTest : public testing::Test {
 protected:
  void SetUp() override {
    constexpr int kPictures = 20, kRecord = 1 + 3 * 32 * 32;
    std::mt19937 random(5);
    std::filesystem::create_directory(folder_.path() / "set");
    std::ofstream file(folder_.path() / "set" / "test_batch.bin", std::ios::binary);
    for (int i = 0; i < kPictures * kRecord; ++i)
      file.put(static_cast<char>(i % kRecord == 0 ? i / kRecord % 10 : static_cast<int>(random() % 256)));
    file.close();
    const std::string plan =
        "source: set, batch_size: 6, seed: 3, output: { dtype: float32 }, transforms: [random_crop: { size: "
        "32, "
        "padding: 4 }, random_horizontal_flip, normalize: { mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4] }]";
    server_.emplace(folder_.path(),
                    "sources: { set: { type: cifar, set: test, path: " + (folder_.path() / "set").string() +
                        " } }\nstreams: { cpu: { " + plan + " }, gpu: { " + plan + ", device: gpu } }\n");
  }

  [[nodiscard]] Stream open(const std::string& stream, bool for_device) const {
    return or_throw(or_throw(Client::connect({.address = folder_.path().string()}))
                        .open({.stream = stream,
                               .commits = for_device ? Commits::kByCaller : Commits::kByNext,
                               .for_device = for_device}));
  }
  [[nodiscard]] std::unique_ptr<DeviceLoader> load() const {
    return or_throw(DeviceLoader::open(open("gpu", true), {.engine = {.device = "host"}}));
  }
  /// Changes what lies in the ring of the first batch's first row, then asks a loader for that batch.
  Error after(const std::function<void(pixels::PictureRow&)>& change) {
    Stream other = open("gpu", true);
    const auto held = or_throw(other.next());
    auto* const field = const_cast<std::byte*>(held->field("image").value().data);
    auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(field) / 4096 * 4096);
    EXPECT_EQ(mprotect(page, 8192, PROT_READ | PROT_WRITE), 0);
    pixels::PictureRow row;
    std::memcpy(&row, field, sizeof row);
    change(row);
    std::memcpy(field, &row, sizeof row);
    const auto batch = load()->next(20s);
    return batch ? Error{ErrorCode::kInternal, "nothing was refused"} : batch.error();
  }

  TempFolder folder_;
  std::optional<RunningServer> server_;
};

TEST_F(PictureFinisherTest, MakesTheServersRows) {
  Stream finished = open("cpu", false);
  auto left = load();
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int batch = 0; batch < 4; ++batch) EXPECT_EQ(seen(next(*left)), seen(*or_throw(finished.next())));
    EXPECT_FALSE(or_throw(left->next()).has_value());
    EXPECT_FALSE(or_throw(finished.next()).has_value());
  }
  EXPECT_EQ(left->info().fields[0].dtype, DType::kFloat32);
  EXPECT_EQ(left->info().on_device.size(), 1U);
}

TEST_F(PictureFinisherTest, KeepsToTheRoomThatASlotHas) {
  EXPECT_THAT(after([](auto& row) { row.offset += std::uint64_t{1} << 40; }).message,
              HasSubstr("lies outside"));
  EXPECT_THAT(after([](auto& row) { row.offset = 0; }).message,
              HasSubstr("row 0: a picture of 32 x 32 pixels at 0"));
  EXPECT_THAT(after([](auto& row) { row.width = 1 << 30, row.height = 1 << 30; }).message,
              HasSubstr("lies outside"));
  EXPECT_THAT(after([](auto& row) { row.height = -1; }).message, HasSubstr("device transform: row 0"));
}

TEST_F(PictureFinisherTest, KeepsToTheStepsThatTheKernelKnows) {
  EXPECT_THAT(after([](auto& row) { row.steps.version = 9; }).message, HasSubstr("device transform: row 0"));
  EXPECT_THAT(after([](auto& row) { row.steps.window.width = 33; }).message,
              HasSubstr("device transform: row 0"));
}

TEST_F(PictureFinisherTest, IsForWhoHasADevice) {
  const auto refused =
      or_throw(Client::connect({.address = folder_.path().string()})).open({.stream = "gpu"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("leaves `image` to the trainer's device"));
}

}  // namespace
}  // namespace headrace::gpu
