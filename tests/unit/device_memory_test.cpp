// Ownership and reuse of the memory of a DeviceLoader's batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <set>
#include <vector>

#include "tests/unit/finished_loader.h"

namespace headrace::gpu {
namespace {

TEST_F(DeviceLoaderTest, ReusesMemoryOnlyAfterTheStreamsThatReadIt) {
  Script script;
  auto loader = load_on(script, {.prefetch = 1});
  std::vector<DeviceBatch> kept;
  std::vector<Seen> first;
  for (int i = 0; i < 4; ++i) {
    kept.push_back(next(*loader));
    ASSERT_TRUE(kept.back().wait_on(100 + i).has_value());
    first.push_back(seen(kept.back()));
  }
  std::set<const std::byte*> addresses;
  for (const DeviceBatch& batch : kept) addresses.insert(batch.field(std::size_t{0}).data);
  EXPECT_EQ(addresses.size(), kept.size()) << "live batches have separate memory";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(seen(kept[i]), first[i]);
  kept.erase(kept.begin());
  EXPECT_THAT(script.released_on, testing::ElementsAre(100));
  EXPECT_THAT(script.held_copies, testing::IsEmpty())
      << "the host already waited for this batch, so its memory was freed";
  std::optional<DeviceBatch> last = next(*loader);
  ASSERT_TRUE(last->wait_on(200).has_value());
  last.reset();
  EXPECT_THAT(script.released_on, testing::ElementsAre(100, 200));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(loader->next(20s).has_value());
  loader.reset();  // joins the threads that write to `script`
  EXPECT_THAT(script.held_copies, testing::ElementsAre(2))
      << "the completion mark of the second released batch";
  EXPECT_THAT(script.dropped, testing::ElementsAre(1));
}

TEST_F(FinishedLoaderTest, ReusesMemoryForBatchesThatTheDeviceComputes) {
  constexpr int kEpochs = 3;
  const std::vector<Seen> expected = epochs_of(open("by_server"), kEpochs);
  const auto loader = DeviceLoader::open(open("by_device"), {.engine = {.device = "host"}}).value();
  std::set<const std::byte*> blocks;
  std::size_t at = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    while (auto batch = loader->next(20s).value()) {
      ASSERT_TRUE(batch->wait_on(7).has_value());  // on the CPU backend this call blocks
      blocks.insert(batch->block().data);
      std::vector<std::byte> bytes;
      for (std::size_t f = 0; f < batch->fields().size(); ++f) {
        const DeviceFieldView field = batch->field(f);
        bytes.insert(bytes.end(), field.data, field.data + field.bytes());
      }
      ASSERT_EQ(bytes, expected.at(at).bytes) << "batch " << at;
      ++at;
    }
  }
  EXPECT_EQ(at, expected.size());
  EXPECT_LT(blocks.size(), expected.size());  // how many depends on the completion thread's speed
}

TEST_F(DeviceLoaderTest, WritesToMemoryOfTheCallersAllocator) {
  std::vector<std::vector<std::byte>> given;
  std::atomic<std::size_t> ended = 0;
  DeviceLoaderOptions options;
  options.allocate = [&](std::size_t bytes) -> Result<DeviceBlock> {
    auto& memory = given.emplace_back(bytes);
    return DeviceBlock{memory.data(), bytes, {memory.data(), [&](std::byte*) { ++ended; }}};
  };
  auto loader = load(options);
  {
    const DeviceBatch batch = next(*loader);
    EXPECT_EQ(batch.block().data, given.front().data());
    EXPECT_EQ(ended, 0U);
  }
  EXPECT_TRUE(comes_true([&] { return ended == 1U; }));
  loader.reset();
  EXPECT_EQ(ended, given.size());
}

TEST_F(DeviceLoaderTest, KeepsTheMemoryOfADroppedBatchUntilItsCopyEnds) {
  std::promise<void> gate;
  Script script{.gate = gate.get_future().share()};
  std::atomic<std::size_t> given = 0, ended = 0;
  std::vector<std::byte> memory(std::size_t{1} << 20);
  DeviceLoaderOptions options{.prefetch = 1};
  options.allocate = [&](std::size_t bytes) -> Result<DeviceBlock> {
    std::byte* block = memory.data() + bytes * given++;
    return DeviceBlock{block, bytes, {block, [&](std::byte*) { ++ended; }}};
  };
  auto loader = load_on(script, options);
  next(*loader);
  EXPECT_EQ(ended, 0U) << "the batch was dropped, but its copy continues";
  gate.set_value();
  EXPECT_TRUE(comes_true([&] { return ended == 1U; }));
  loader.reset();
  EXPECT_EQ(ended, given);
}

TEST_F(DeviceLoaderTest, RefusesThePerThreadDefaultStream) {
  const auto loader = load();
  DeviceBatch batch = next(*loader);
  const auto refused = batch.wait_on(2);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(DeviceLoaderTest, PrefetchesLessWhenMemoryIsShort) {
  std::vector<std::vector<std::byte>> given;
  given.reserve(100);
  bool out_of_memory = false;
  DeviceLoaderOptions options{.prefetch = 3};
  options.allocate = [&](std::size_t bytes) -> Result<DeviceBlock> {
    if (out_of_memory) return fail(ErrorCode::kNotEnoughMemory, "none left");
    auto& memory = given.emplace_back(bytes);
    return DeviceBlock{memory.data(), bytes, {memory.data(), [](std::byte*) {}}};
  };
  const auto loader = load(options);
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    EXPECT_EQ(next(*loader).batch(), batch);
    out_of_memory = true;
  }
  const auto none = loader->next(20s);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::kNotEnoughMemory);
  out_of_memory = false;
  EXPECT_EQ(next(*loader).batch(), 4U);
}

TEST_F(DeviceLoaderTest, BatchesOutliveTheirLoader) {
  auto loader = load();
  const DeviceBatch batch = next(*loader);
  const Seen before = seen(batch);
  loader.reset();
  EXPECT_EQ(seen(batch), before);
}

TEST_F(DeviceLoaderTest, AForkedChildMayDropBatchesOfADestroyedLoader) {
  auto loader = load();
  std::optional<DeviceBatch> batch = next(*loader);
  loader.reset();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    batch.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace::gpu
