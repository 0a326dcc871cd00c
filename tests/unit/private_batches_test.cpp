// Batches::kPrivate over a real server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "clientlib/ring/private_pages.h"
#include "headrace/client.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLarge = 100'000, kSmall = 100;  // bytes of a row; 8 rows are a batch
constexpr std::uint64_t kSamples = 40;

class PrivateBatchesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!ring::PrivatePages::open()) GTEST_SKIP() << "this kernel has no copy-on-write views";
    serve(kLarge);
  }
  void serve(std::size_t bytes) {
    server_.reset();
    server_.emplace(directory_, kSamples, bytes, "batch_size: 8, ring: { max_leases: 3 }");
  }
  [[nodiscard]] Stream open(Batches batches, const std::string& client = "") {
    OpenOptions options;
    options.stream = "train";
    options.batches = batches;
    options.client = client;
    options.warn = [this](std::string_view text) { warnings_.emplace_back(text); };
    return Client::connect({.address = directory_, .timeout = 2s}).value().open(options).value();
  }
  static BatchView next(Stream& stream) {
    for (;;)  // past the epoch's end
      if (auto batch = stream.next(20s).value()) return std::move(*batch);
  }
  static FieldView values(const BatchView& batch) { return batch.field(batch.fields().front().name).value(); }
  static std::vector<std::byte> bytes_of(const BatchView& batch) {
    const FieldView field = values(batch);
    return {field.data, field.data + field.bytes()};
  }
  static void write(const BatchView& batch, std::size_t every) {
    const FieldView field = values(batch);
    for (std::size_t at = 0; at < field.bytes(); at += every) field.writable[at] = std::byte{0xAA};
  }

  TempFolder folder_;
  const std::string directory_ = folder_.path().string();
  std::vector<std::string> warnings_;
  std::optional<RunningServer> server_;
};

TEST_F(PrivateBatchesTest, ALargeBatchIsAViewThatMayBeWrittenTo) {
  Stream stream = open(Batches::kPrivate);
  const BatchView batch = next(stream);
  EXPECT_TRUE(batch.private_copy());
  EXPECT_EQ(stream.live_views(), 1u);
  EXPECT_EQ(values(batch).writable, values(batch).data);
  EXPECT_TRUE(stream.mapping().empty()) << "pinning it would make all of it private";
  Stream shared = open(Batches::kShared);
  const BatchView same = next(shared);
  EXPECT_EQ(values(same).writable, nullptr);
  EXPECT_EQ(bytes_of(batch), bytes_of(same));
}

TEST_F(PrivateBatchesTest, NobodySeesWhatOneLoopWritesNotEvenItselfInALaterBatch) {
  Stream writing = open(Batches::kPrivate);
  Stream reading = open(Batches::kShared);
  for (int i = 0; i < 60; ++i) {
    BatchView mine = next(writing);
    const BatchView theirs = next(reading);
    ASSERT_EQ(bytes_of(mine), bytes_of(theirs)) << i;
    const auto before = bytes_of(theirs);
    write(mine, 50 * ring::page_size());
    ASSERT_EQ(bytes_of(theirs), before) << i;
    ASSERT_EQ(writing.live_views(), 1u) << "few pages were written to, so batches stay views";
  }
}

TEST_F(PrivateBatchesTest, ALoopThatWritesToAllOfItsBatchesGetsCopiesFromThenOn) {
  Stream writing = open(Batches::kPrivate);
  Stream reading = open(Batches::kShared);
  for (int i = 0; i < 30; ++i) {
    const BatchView mine = next(writing);
    ASSERT_EQ(bytes_of(mine), bytes_of(next(reading))) << i;
    ASSERT_EQ(writing.live_views(), i == 0 ? 1u : 0u) << i;
    write(mine, 1);
  }
}

TEST_F(PrivateBatchesTest, SmallBatchesAreCopies) {
  serve(kSmall);
  Stream stream = open(Batches::kPrivate);
  const BatchView batch = next(stream);
  EXPECT_TRUE(batch.private_copy());
  EXPECT_EQ(stream.live_views(), 0u);
  EXPECT_EQ(values(batch).writable, values(batch).data);
}

TEST_F(PrivateBatchesTest, KeepingEveryBatchHoldsUpNobody) {
  Stream keeping = open(Batches::kPrivate);
  Stream reading = open(Batches::kShared);
  std::vector<BatchView> kept;
  while (auto batch = keeping.next(20s).value()) kept.push_back(std::move(*batch));
  ASSERT_EQ(kept.size(), kSamples / 8);
  EXPECT_EQ(keeping.live_views(), 2u) << "one lease stays free for the loop";
  for (const BatchView& batch : kept) {
    EXPECT_TRUE(batch.private_copy());
    EXPECT_EQ(bytes_of(batch), bytes_of(next(reading)));
  }
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

TEST_F(PrivateBatchesTest, AKeptFieldKeepsItsMemoryAndNotItsBatch) {
  Stream stream = open(Batches::kPrivate);
  std::vector<BatchView> held;
  for (int i = 0; i < 2; ++i) held.push_back(next(stream));
  FieldView field;
  std::shared_ptr<const void> kept;
  std::vector<std::byte> bytes;
  {
    const BatchView copy = next(stream);
    field = values(copy);
    kept = copy.keep(0);
    bytes = bytes_of(copy);
  }
  for (int i = 0; i < 20; ++i) next(stream);  // copies: they would reuse its buffer
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), field.data));
}

TEST_F(PrivateBatchesTest, ABatchOutlivesItsStreamWithoutHoldingItsSession) {
  std::optional<Stream> stream = open(Batches::kPrivate, "mine");
  const BatchView batch = next(*stream);
  write(batch, 9 * ring::page_size());
  const auto before = bytes_of(batch);
  stream.reset();
  Stream successor = open(Batches::kPrivate, "mine");  // CLIENT_NAME_TAKEN if the session still existed
  for (int i = 0; i < 30; ++i) next(successor);
  EXPECT_EQ(bytes_of(batch), before);
}

TEST_F(PrivateBatchesTest, AForkedChildKeepsTheBatchThatItsParentHeld) {
  Stream stream = open(Batches::kPrivate);
  std::optional<BatchView> batch = next(stream);
  const auto before = bytes_of(*batch);
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(go[1]);
    (void)!::read(go[0], &byte, 1);
    ::_exit(bytes_of(*batch) == before ? 0 : 1);
  }
  ::close(go[0]);
  EXPECT_EQ(bytes_of(*batch), before);
  write(*batch, 1);
  batch.reset();
  for (int i = 0; i < 30; ++i) {
    const BatchView later = next(stream);
    EXPECT_EQ(stream.live_views(), 1u) << "pages that a fork copied are not writes of the loop";
  }
  ::close(go[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(PrivateBatchesTest, AProcessThatLocksItsMemoryReadsTheServersBytesAllTheSame) {
  Stream reading = open(Batches::kShared);
  Stream stream = open(Batches::kPrivate);
  next(stream);
  next(reading);
  const bool locked = ::mlockall(MCL_CURRENT | MCL_FUTURE) == 0;
  for (int i = 0; locked && i < 30; ++i) EXPECT_EQ(bytes_of(next(stream)), bytes_of(next(reading))) << i;
  ::munlockall();
  if (!locked) GTEST_SKIP() << "may not lock memory";
}

TEST_F(PrivateBatchesTest, ViewsMayEndInAnyThreadWhileOthersBegin) {
  Stream reading = open(Batches::kShared);
  Stream stream = open(Batches::kPrivate);
  for (int i = 0; i < 100; ++i) {
    BatchView batch = next(stream);
    ASSERT_EQ(bytes_of(batch), bytes_of(next(reading))) << i;
    if (i % 3 == 0) write(batch, 40 * ring::page_size());
    std::thread([gone = std::move(batch)]() mutable { gone.release(); }).detach();
  }
  while (stream.live_views() > 0) std::this_thread::sleep_for(1ms);
}

}  // namespace
}  // namespace headrace
