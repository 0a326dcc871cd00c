// The client's stream over a real server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <vector>

#include "clientlib/client/exchange.h"
#include "headrace/client.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::uint32_t kBatch = 8;
constexpr std::uint64_t kSamples = 50;
constexpr std::uint64_t kBatches = 7;

class StreamTest : public testing::Test {
 protected:
  void SetUp() override { serve(); }
  void serve(const std::string& more = "") {
    server_.reset();
    server_.emplace(directory_, kSamples, 1000, "batch_size: 8, ring: { max_leases: 3 }" + more);
  }
  [[nodiscard]] Stream open(OpenOptions options = {}) const {
    options.stream = "train";
    return Client::connect({.address = directory_}).value().open(options).value();
  }
  static BatchView next(Stream& stream) {
    auto batch = stream.next(20s);
    EXPECT_TRUE(batch) << batch.error().to_string();
    return std::move(batch.value().value());
  }
  static std::vector<std::uint64_t> rest_of_epoch(Stream& stream) {
    std::vector<std::uint64_t> samples;
    while (auto batch = stream.next(20s).value())
      for (std::uint32_t row = 0; row < batch->rows(); ++row)
        if (batch->valid(row)) samples.push_back(batch->sample_index(row));
    return samples;
  }

  TempFolder folder_;
  const std::string directory_ = folder_.path().string();
  std::optional<RunningServer> server_;
};

std::vector<std::byte> bytes_of(const BatchView& batch) {
  std::vector<std::byte> all;
  for (const FieldSpec& spec : batch.fields()) {
    const FieldView field = batch.field(spec.name).value();
    all.insert(all.end(), field.data, field.data + field.bytes());
  }
  return all;
}

TEST_F(StreamTest, EpochsFollowEachOtherAndEachHasEverySampleOnce) {
  Stream stream = open();
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(stream.epoch(), epoch);
    EXPECT_EQ(stream.length(), kBatches);
    auto samples = rest_of_epoch(stream);
    std::sort(samples.begin(), samples.end());
    ASSERT_EQ(samples.size(), kSamples);
    for (std::uint64_t i = 0; i < kSamples; ++i) EXPECT_EQ(samples[i], i);
  }
  EXPECT_GT(stream.waited().count(), 0);
}

TEST_F(StreamTest, ABatchDescribesItsShapeAndFields) {
  Stream stream = open();
  const BatchView batch = next(stream);
  EXPECT_EQ(batch.epoch(), 0u);
  EXPECT_EQ(batch.batch(), 0u);
  EXPECT_EQ(batch.rows(), kBatch);
  EXPECT_EQ(batch.valid_rows(), kBatch);
  EXPECT_FALSE(batch.private_copy());
  const FieldSpec& spec = batch.fields().front();
  const FieldView field = batch.field(spec.name).value();
  EXPECT_EQ(field.shape, (std::vector<std::int64_t>{kBatch, 1000}));
  EXPECT_EQ(field.strides, (std::vector<std::int64_t>{1000, 1}));
  EXPECT_EQ(batch.values<std::byte>(spec.name).value().size(), kBatch * 1000u);
  EXPECT_EQ(batch.values<std::uint8_t>(spec.name).value()[0], static_cast<std::uint8_t>(field.data[0]));
  const auto missing = batch.field("pixels");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("no field 'pixels'; it has: " + spec.name));
  EXPECT_EQ(
      batch.values<double>(spec.name).error().message,
      "field '" + spec.name +
          "' has uint8 values, it was asked for as 8-byte floating-point numbers: call values() with its own "
          "type, or set another `output: {dtype: ...}` in the stream's configuration");
  EXPECT_EQ(batch.values<std::uint8_t>("pixels").error().message, missing.error().message);
}

TEST_F(StreamTest, ViewsOutliveTheirStreamUnchanged) {
  std::optional<Stream> stream = open();
  const BatchView view = next(*stream);
  const auto before = bytes_of(view);
  stream.reset();
  Stream other = open();
  for (int epoch = 0; epoch < 3; ++epoch) rest_of_epoch(other);
  EXPECT_EQ(bytes_of(view), before);
}

TEST_F(StreamTest, ViewsMayBeReleasedByAnyThreadInAnyOrder) {
  serve(", sharing: { wait_for: 1 }");
  Stream stream = open();
  for (int round = 0; round < 30; ++round) {
    std::vector<BatchView> held;
    while (held.size() < 2)
      if (auto batch = stream.next(20s).value()) held.push_back(std::move(*batch));
    EXPECT_EQ(stream.live_views(), 2u);
    std::thread([view = std::move(held[static_cast<std::size_t>(round % 2)])]() mutable {
      view.release();
    }).join();
    EXPECT_EQ(stream.live_views(), 1u);
  }
}

TEST_F(StreamTest, KeepingEveryViewGivesPrivateCopiesAndOneWarning) {
  std::vector<std::string> warnings;
  OpenOptions options;
  options.warn = [&](std::string_view text) { warnings.emplace_back(text); };
  Stream stream = open(std::move(options));
  std::vector<BatchView> kept;
  while (auto batch = stream.next(20s).value()) kept.push_back(std::move(*batch));
  ASSERT_EQ(kept.size(), kBatches);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i].private_copy(), i >= 2) << i;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("2 views are alive, of 3 leases"));

  Stream again = open();
  for (const BatchView& view : kept) EXPECT_EQ(bytes_of(view), bytes_of(next(again)));
}

TEST_F(StreamTest, SetEpochKeepsPrefetchedBatchesIfTheEpochIsTheNextOneAnyway) {
  Stream stream = open();
  while (stream.ready() == 0) std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(stream.set_epoch(0));
  EXPECT_GT(stream.ready(), 0u) << "prefetched batches are kept";
  rest_of_epoch(stream);
  ASSERT_TRUE(stream.set_epoch(1));
  EXPECT_EQ(next(stream).epoch(), 1u);
  ASSERT_TRUE(stream.set_epoch(9));
  const BatchView batch = next(stream);
  EXPECT_EQ(batch.epoch(), 9u);
  EXPECT_EQ(batch.batch(), 0u);
}

TEST_F(StreamTest, NextEpochSkipsOnlyAnEpochThatWasBegun) {
  Stream stream = open();
  ASSERT_TRUE(stream.next_epoch());
  EXPECT_EQ(stream.epoch(), 0u);
  (void)next(stream);
  EXPECT_TRUE(stream.begun());
  ASSERT_TRUE(stream.next_epoch());
  EXPECT_EQ(stream.epoch(), 1u);
  EXPECT_EQ(next(stream).batch(), 0u);
}

TEST_F(StreamTest, AStateResumesByteIdentically) {
  Stream stream = open();
  for (int i = 0; i < 3; ++i) (void)next(stream);
  const State state = State::from_json(stream.state().to_json()).value();
  EXPECT_EQ(state.cursor, (Cursor{0, 0, 3}));
  const auto expected = bytes_of(next(stream));
  rest_of_epoch(stream);
  EXPECT_EQ(stream.state().cursor, (Cursor{1, 0, 0}));

  ASSERT_TRUE(stream.load_state(state));
  EXPECT_EQ(bytes_of(next(stream)), expected);
  OpenOptions options;
  options.state = state;
  Stream other = open(std::move(options));
  EXPECT_EQ(bytes_of(next(other)), expected);
}

/// How often this process maps the slots of a ring.
int ring_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("headrace-data-") != std::string::npos ? 1 : 0;
  return count;
}

TEST_F(StreamTest, ContinuesWithTheNextBatchOfARestartedServer) {
  Stream stream = open();
  const BatchView held = next(stream);
  const auto before = bytes_of(held);
  const auto generation = stream.mapping_generation();
  serve();
  const BatchView after = next(stream);
  EXPECT_EQ(after.batch(), 1u);
  EXPECT_EQ(bytes_of(held), before);
  EXPECT_EQ(ring_mappings(), 2) << "the new server's, and this stream's: the old ring's memory is free";
  EXPECT_EQ(stream.mapping_generation(), generation + 1);
  EXPECT_EQ(rest_of_epoch(stream).size(), kSamples - 2 * kBatch);
}

TEST_F(StreamTest, AnUnusedTokenDoesNotDelayAReturningClient) {
  OpenOptions options;
  options.client = "returning";
  Stream stream = open(std::move(options));
  (void)next(stream);
  serve();
  // The state after a connection that broke between the token and the attachment.
  wire::OpenRequest request;
  request.stream = "train";
  request.group = request.client = "returning";
  request.pid = ::getpid();
  ASSERT_TRUE(client::exchange({directory_, {}}, "open", wire::to_json(request), client::Deadline(10s)));
  EXPECT_EQ(next(stream).batch(), 1u);
  EXPECT_EQ(rest_of_epoch(stream).size(), kSamples - 2 * kBatch);
}

TEST_F(StreamTest, AnInterruptEndsAWait) {
  serve(", sharing: { wait_for: 2 }");
  Stream stream = open();
  stream.set_interrupt([] { return true; });
  const auto batch = stream.next(60s);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(batch.error().message, HasSubstr("interrupted"));
}

TEST_F(StreamTest, ATimeoutSaysWhatItWaitedForAndLosesNothing) {
  serve(", sharing: { wait_for: 2 }");
  Stream stream = open();
  const auto batch = stream.next(50ms);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(batch.error().message, HasSubstr("epoch 0, batch 0"));
  Stream second = open();
  EXPECT_EQ(next(second).batch(), 0u);
  EXPECT_EQ(next(stream).batch(), 0u);
}

TEST_F(StreamTest, AnEndlessTimeoutDoesNotOverflow) {
  serve(", sharing: { wait_for: 2 }");
  OpenOptions options;
  options.reconnect_timeout = std::chrono::milliseconds::max();
  Stream stream = open(std::move(options));
  std::jthread later([this] {
    std::this_thread::sleep_for(100ms);
    Stream second = open();
    (void)next(second);
  });
  const auto batch = stream.next(std::chrono::milliseconds::max());
  ASSERT_TRUE(batch) << batch.error().to_string();
  later.join();
  serve();
  const auto after = stream.next(std::chrono::milliseconds::max());
  ASSERT_TRUE(after) << after.error().to_string();
}

TEST_F(StreamTest, AForkedChildIsRefusedAndEndsNoLeaseOfItsParent) {
  Stream stream = open();
  std::optional<BatchView> view = next(stream);
  const auto before = bytes_of(*view);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = stream.next(1s).error().code == ErrorCode::kForked &&
                         stream.set_epoch(4).error().code == ErrorCode::kForked;
    view.reset();
    ::_exit(refused ? 17 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 17);
  EXPECT_EQ(stream.live_views(), 1u);
  EXPECT_EQ(rest_of_epoch(stream).size(), kSamples - kBatch);
  EXPECT_EQ(bytes_of(*view), before);
}

TEST_F(StreamTest, JoiningAtACursorNeedsOne) {
  auto client = Client::connect({.address = directory_}).value();
  const auto stream = client.open({.stream = "train", .join = Join::kCursor});
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(stream.error().message, HasSubstr("join=cursor needs a state"));
}

TEST_F(StreamTest, ResumesFromTheServerOrJoinsOthersButNotBoth) {
  auto client = Client::connect({.address = directory_}).value();
  const auto stream = client.open({.stream = "train", .join = Join::kEpochStart, .resume_from_server = true});
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(stream.error().message,
              HasSubstr("resume_from_server (Python: resume='server') and join=epoch_start both say where to "
                        "begin; set only one of them"));
}

TEST_F(StreamTest, AMissingStreamIsNamedWithTheExistingOnes) {
  auto client = Client::connect({.address = directory_}).value();
  const auto stream = client.open({.stream = "trian"});
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, ErrorCode::kNoSuchStream);
  EXPECT_THAT(stream.error().message, HasSubstr("this server has: train"));
}

}  // namespace
}  // namespace headrace
