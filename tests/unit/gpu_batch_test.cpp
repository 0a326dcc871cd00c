// Batches of a real server through the copy engine's host twin: the lease goes with the copy.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "headrace/client.h"
#include "headrace/gpu.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"
#include "tests/unit/scripted_device.h"

namespace headrace::gpu {
namespace {

constexpr std::size_t kRow = 5000;
constexpr std::uint32_t kBatch = 8;

class BatchCopy : public testing::Test {
 protected:
  void SetUp() override {
    serve();
    client_.emplace(Client::connect({.address = folder_.path().string()}).value());
    stream_.emplace(client_->open({.stream = "train"}).value());
    engine_ = CopyEngine::open({.device = "host"}).value();
  }
  void TearDown() override {
    engine_.reset();
    stream_.reset();
    client_.reset();
    server_.reset();
  }
  /// As little look-ahead and as few leases as there may be.
  void serve() {
    server_.reset();
    server_.emplace(folder_.path(), 100, kRow,
                    "batch_size: " + std::to_string(kBatch) + ", ring: { max_leases: 2 }");
  }

  TempFolder folder_;
  std::optional<RunningServer> server_;
  std::optional<Client> client_;
  std::optional<Stream> stream_;
  std::unique_ptr<CopyEngine> engine_;
};

TEST_F(BatchCopy, CarriesEveryByteOfAnEpochAndGivesEachLeaseBack) {
  const std::string field = stream_->info().fields.front().name;
  const auto buffer = engine_->allocate(kRow * kBatch).value();
  std::uint64_t batches = 0;
  while (auto batch = stream_->next(std::chrono::seconds(30)).value()) {
    const auto values = batch->values<std::byte>(field);
    const std::vector<std::byte> expected(values.begin(), values.end());
    const Destination destination{field, buffer.data(), buffer.size()};
    const auto copy = engine_->copy(std::move(*batch), {&destination, 1}).value();
    ASSERT_TRUE(copy.wait().has_value());
    EXPECT_EQ(stream_->live_views(), 0U) << "the copy has ended, so has the lease";
    ASSERT_EQ(std::memcmp(buffer.data(), expected.data(), expected.size()), 0);
    ++batches;
  }
  EXPECT_EQ(batches, stream_->length());
  EXPECT_EQ(engine_->stats().direct_copies, batches) << "every batch was read from the pinned ring";
}

TEST_F(BatchCopy, TellsTheServerHowManyBatchesWereStagedBecauseTheRingCouldNotBePinned) {
  Script script{.refuse_pin_after = 0};
  CopyEngine staging(std::make_unique<ScriptedDevice>(script), {.warn = [](std::string_view) {}});
  const auto buffer = staging.allocate(kRow * kBatch).value();
  const Destination destination{stream_->info().fields.front().name, buffer.data(), buffer.size()};
  for (int batch = 0; batch < 3; ++batch)
    ASSERT_TRUE(staging.copy(stream_->next().value().value(), {&destination, 1}).value().wait().has_value());
  EXPECT_NE(client_->stats().value().find(R"("staged_copies":3)"), std::string::npos) << *client_->stats();
}

TEST_F(BatchCopy, RefusesABufferThatIsTooSmallAndEndsTheLease) {
  const std::string field = stream_->info().fields.front().name;
  const auto buffer = engine_->allocate(100).value();
  auto batch = stream_->next(std::chrono::seconds(30)).value();
  const Destination destination{field, buffer.data(), buffer.size()};
  const auto copy = engine_->copy(std::move(*batch), {&destination, 1});
  ASSERT_FALSE(copy.has_value());
  EXPECT_EQ(copy.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(stream_->live_views(), 0U);
}

TEST_F(BatchCopy, NamesTheFieldsThereAreWhenAskedForAnother) {
  auto batch = stream_->next(std::chrono::seconds(30)).value();
  const Destination destination{"no_such_field", nullptr, 0};
  const auto copy = engine_->copy(std::move(*batch), {&destination, 1});
  ASSERT_FALSE(copy.has_value());
  EXPECT_NE(copy.error().message.find(stream_->info().fields.front().name), std::string::npos);
}

TEST_F(BatchCopy, GoesOnWithTheRingOfARestartedServer) {
  const std::string field = stream_->info().fields.front().name;
  const auto buffer = engine_->allocate(kRow * kBatch).value();
  const Destination destination{field, buffer.data(), buffer.size()};
  const std::uint64_t before = stream_->mapping_generation();
  ASSERT_TRUE(engine_->copy(stream_->next().value().value(), {&destination, 1}).value().wait().has_value());
  serve();
  auto batch = stream_->next(std::chrono::seconds(30)).value();
  ASSERT_TRUE(batch.has_value());
  EXPECT_NE(stream_->mapping_generation(), before);
  const auto values = batch->values<std::byte>(field);
  const std::vector<std::byte> expected(values.begin(), values.end());
  ASSERT_TRUE(engine_->copy(std::move(*batch), {&destination, 1}).value().wait().has_value());
  EXPECT_EQ(std::memcmp(buffer.data(), expected.data(), expected.size()), 0);
  EXPECT_EQ(engine_->stats().direct_copies, 2U);
}

}  // namespace
}  // namespace headrace::gpu
