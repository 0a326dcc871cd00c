// Batches of a real server through a DeviceLoader on the host twin, and on devices that stall or fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "headrace/device_loader.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"
#include "tests/unit/scripted_device.h"

namespace headrace::gpu {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::uint64_t kSamples = 50;
constexpr std::size_t kRow = 1000;

/// What a loop can see of a batch.
struct Seen {
  std::uint64_t epoch = 0, batch = 0;
  std::vector<std::uint64_t> samples;
  std::vector<std::byte> bytes;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen seen(const BatchView& batch) {
  Seen out{batch.epoch(), batch.batch(), {}, {}};
  for (const RowInfo& row : batch.all_rows()) out.samples.push_back(row.sample_index);
  for (const FieldSpec& spec : batch.fields()) {
    const FieldView field = batch.field(spec.name).value();
    out.bytes.insert(out.bytes.end(), field.data, field.data + field.bytes());
  }
  return out;
}

Seen seen(const DeviceBatch& batch) {
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
  void serve(const std::string& plan = "batch_size: 8, ring: { max_leases: 4 }") {
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

DeviceBatch next(DeviceLoader& loader) {
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

TEST_F(DeviceLoaderTest, GivesTheBytesRowsAndEpochsOfTheStream) {
  Stream stream = open();
  const auto loader = load();
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(loader->length(), stream.length());
    for (;;) {
      const auto expected = stream.next(20s).value();
      const auto batch = loader->next(20s).value();
      ASSERT_EQ(batch.has_value(), expected.has_value());
      if (!batch) break;
      ASSERT_EQ(seen(*batch), seen(*expected));
    }
  }
  EXPECT_EQ(loader->epoch(), 3U);
}

TEST_F(DeviceLoaderTest, HasSoManyBatchesThereBeforeTheyAreAskedForAndNoMore) {
  const auto loader = load({.prefetch = 3});
  const DeviceBatch first = next(*loader);
  ASSERT_TRUE(comes_true([&] { return loader->ready() == 3; })) << loader->ready();
  next(*loader);
  ASSERT_TRUE(comes_true([&] { return loader->ready() == 3; })) << loader->ready();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(loader->ready(), 3U);
}

TEST_F(DeviceLoaderTest, NeverWaitsForACopyAndKeepsLeasesUntilTheirCopiesEnd) {
  std::promise<void> gate;
  Script script{.gate = gate.get_future().share()};
  const auto loader = load_on(script, {.gathered = 0});
  DeviceBatch batch = next(*loader);
  ASSERT_TRUE(batch.wait_on(42).has_value());
  EXPECT_THAT(script.held_streams, testing::ElementsAre(42));
  // The server fills a slot again only when its lease is over: of 4 leases, no batch beyond the 3rd is
  // copied.
  const auto more = std::async(std::launch::async, [&] {
    std::vector<Seen> rest;
    for (int i = 0; i < 5; ++i) rest.push_back(seen(next(*loader)));
    return rest;
  });
  EXPECT_EQ(more.wait_for(300ms), std::future_status::timeout);
  gate.set_value();
  EXPECT_EQ(more.wait_for(20s), std::future_status::ready);
}

TEST_F(DeviceLoaderTest, CountsOnlyWhatTheLoopWasGivenInStatesAndCommits) {
  Stream stream = open();
  std::vector<Seen> expected;
  while (const auto batch = stream.next(20s).value()) expected.push_back(seen(*batch));
  State state;
  {
    const auto loader = load({.prefetch = 4}, {.group = "job", .client = "first"});
    for (int i = 0; i < 3; ++i) ASSERT_EQ(seen(next(*loader)), expected[i]);
    ASSERT_TRUE(comes_true([&] { return loader->ready() > 0; }));
    state = loader->state();
    EXPECT_EQ(state.cursor, (Cursor{0, 0, 3}));
  }
  EXPECT_EQ(seen(next(*load({}, {.group = "job", .client = "first", .resume_from_server = true}))),
            expected[2])
      << "the third was in the loop's hands";
  EXPECT_EQ(seen(next(*load({}, {.client = "second", .state = state}))), expected[3]);
}

TEST_F(DeviceLoaderTest, DoesWhatAStreamDoesWhateverIsAskedOfIt) {
  std::mt19937 random(7);
  const auto any = [&](std::size_t n) { return random() % n; };
  for (const std::uint32_t prefetch : {1, 2, 5}) {
    Stream stream = open();
    const auto loader = load({.prefetch = prefetch});
    std::vector<State> states;
    for (int step = 0; step < 300; ++step) {
      switch (any(12)) {
        case 0: {
          const std::uint64_t epoch = any(3);
          ASSERT_TRUE(stream.set_epoch(epoch).has_value());
          ASSERT_TRUE(loader->set_epoch(epoch).has_value());
          break;
        }
        case 1:
          ASSERT_TRUE(stream.next_epoch().has_value());
          ASSERT_TRUE(loader->next_epoch().has_value());
          break;
        case 2:
          states.push_back(stream.state());
          break;
        case 3:
          if (states.empty()) break;
          ASSERT_TRUE(stream.load_state(states[any(states.size())]).has_value());
          ASSERT_TRUE(loader->load_state(stream.state()).has_value());
          break;
        default: {
          const auto expected = stream.next(20s).value();
          const auto batch = loader->next(20s).value();
          ASSERT_EQ(batch.has_value(), expected.has_value()) << "step " << step;
          if (batch) {
            ASSERT_EQ(seen(*batch), seen(*expected)) << "step " << step;
          }
        }
      }
      ASSERT_EQ(loader->cursor(), stream.cursor()) << "step " << step;
      ASSERT_EQ(loader->state().to_json(), stream.state().to_json());
      ASSERT_EQ(loader->epoch(), stream.epoch());
      ASSERT_EQ(loader->length(), stream.length()) << "step " << step;
      ASSERT_EQ(loader->begun(), stream.begun()) << "step " << step;
    }
  }
}

TEST_F(DeviceLoaderTest, PutsSmallBatchesThatAreThereIntoOneCopy) {
  serve("batch_size: 1, ring: { prefetch: 16 }");
  const auto loader = load({.prefetch = 8});
  next(*loader);
  ASSERT_TRUE(comes_true([&] { return loader->ready() >= 7; }));
  std::this_thread::sleep_for(200ms);  // the server fills its ring
  for (std::uint64_t i = 1; i < kSamples; ++i) next(*loader);
  const EngineStats stats = loader->stats();
  EXPECT_GT(stats.gathered_copies, 0U);
  EXPECT_LT(stats.gathered_copies, kSamples);
  EXPECT_EQ(stats.direct_copies + stats.staged_copies, 0U);
}

TEST_F(DeviceLoaderTest, UsesMemoryAgainOnlyBehindTheStreamsThatReadIt) {
  Script script;
  const auto loader = load_on(script, {.prefetch = 1, .gathered = 0});
  std::vector<DeviceBatch> kept;
  std::vector<Seen> first;
  for (int i = 0; i < 4; ++i) {
    kept.push_back(next(*loader));
    ASSERT_TRUE(kept.back().wait_on(100 + i).has_value());
    first.push_back(seen(kept.back()));
  }
  std::set<const std::byte*> places;
  for (const DeviceBatch& batch : kept) places.insert(batch.field(std::size_t{0}).data);
  EXPECT_EQ(places.size(), kept.size()) << "batches that are alive have memory of their own";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(seen(kept[i]), first[i]);
  kept.erase(kept.begin());
  EXPECT_THAT(script.released_on, testing::UnorderedElementsAre(0, 100)) << "100, and wait() of seen()";
  for (int i = 0; i < 3; ++i) next(*loader);
  EXPECT_THAT(script.held_copies, testing::IsSupersetOf({1, 2})) << "the marks of both";
}

TEST_F(DeviceLoaderTest, WritesWhereItsCallerSays) {
  std::vector<std::vector<std::byte>> given;
  std::atomic<std::size_t> ended = 0;
  DeviceLoaderOptions options{.gathered = 0};
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

TEST_F(DeviceLoaderTest, KeepsMemoryThatACopyIsWrittenToAlthoughNobodyWantsItAnyMore) {
  for (const std::size_t gathered : {std::size_t{0}, std::size_t{1} << 20}) {
    std::promise<void> gate;
    Script script{.gate = gate.get_future().share()};
    std::atomic<std::size_t> given = 0, ended = 0;
    std::vector<std::byte> memory(std::size_t{1} << 20);
    DeviceLoaderOptions options{.prefetch = 1, .gathered = gathered};
    options.allocate = [&](std::size_t bytes) -> Result<DeviceBlock> {
      std::byte* place = memory.data() + bytes * given++;
      return DeviceBlock{place, bytes, {place, [&](std::byte*) { ++ended; }}};
    };
    auto loader = load_on(script, options);
    next(*loader);
    EXPECT_EQ(ended, 0U) << "the batch has gone, its copy goes on";
    gate.set_value();
    EXPECT_TRUE(comes_true([&] { return ended == 1U; }));
    loader.reset();
    EXPECT_EQ(ended, given);
  }
}

TEST_F(DeviceLoaderTest, TellsOfAFailedCopyAndComesBackToItsBatch) {
  Stream stream = open();
  const Seen expected = seen(*stream.next(20s).value());
  Script script{.fail_copies = true};
  const auto loader = load_on(script);
  const auto failed = loader->next(20s);
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message, HasSubstr("the device is gone"));
  EXPECT_EQ(loader->cursor(), Cursor{});
  script.fail_copies = false;
  EXPECT_EQ(seen(next(*loader)), expected);
}

TEST_F(DeviceLoaderTest, GoesOnWithTheNextBatchOfARestartedServer) {
  Stream stream = open();
  const auto loader = load({.prefetch = 3});
  ASSERT_EQ(seen(next(*loader)), seen(*stream.next(20s).value()));
  serve();
  for (;;) {
    const auto expected = stream.next(20s).value();
    const auto batch = loader->next(20s).value();
    ASSERT_EQ(batch.has_value(), expected.has_value());
    if (!batch) break;
    ASSERT_EQ(seen(*batch), seen(*expected));
  }
}

TEST_F(DeviceLoaderTest, SaysWhatItWaitedForAndLosesNothingByIt) {
  const auto loader = load({}, {.reconnect_timeout = 60s});
  const Seen first = seen(next(*loader));
  while (loader->ready() > 0) next(*loader);
  server_.reset();
  Cursor due;
  for (;;) {
    due = loader->cursor();
    const auto batch = loader->next(300ms);
    if (batch) continue;
    EXPECT_EQ(batch.error().code, ErrorCode::kTimeout);
    EXPECT_THAT(batch.error().message, HasSubstr("waited 0."));
    break;
  }
  EXPECT_EQ(loader->cursor(), due);
  serve();
  const auto batch = loader->next(20s).value();
  EXPECT_TRUE(due.batch >= loader->length() ? !batch : batch->batch() == due.batch);
}

TEST_F(DeviceLoaderTest, ABreakByTheCallerLosesNothing) {
  const auto loader = load();
  next(*loader);
  server_.reset();
  while (loader->ready() > 0) next(*loader);
  const Cursor due = loader->cursor();
  loader->set_interrupt([] { return true; });
  const auto broken = loader->next(20s);
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code, ErrorCode::kTimeout);
  loader->set_interrupt({});
  serve();
  EXPECT_EQ(next(*loader).batch(), due.batch);
}

TEST_F(DeviceLoaderTest, BatchesOutliveTheirLoader) {
  auto loader = load();
  const DeviceBatch batch = next(*loader);
  const Seen before = seen(batch);
  loader.reset();
  EXPECT_EQ(seen(batch), before);
}

TEST_F(DeviceLoaderTest, AForkedChildIsRefusedAndLeavesItsParentAlone) {
  auto loader = load();
  next(*loader);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto batch = loader->next(1s);
    const bool refused = !batch && batch.error().code == ErrorCode::kForked;
    loader.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(next(*loader).batch(), 1U);
}

}  // namespace
}  // namespace headrace::gpu
