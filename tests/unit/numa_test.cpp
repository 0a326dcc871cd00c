// Tests the calls that place workers and memory on this machine's NUMA nodes. On one node, the calls are made
// and all pages must be on that node. On several nodes, pages must be interleaved.
#include "server/placement/apply.h"

#include <gmock/gmock.h>
#include <numaif.h>
#include <sched.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "clientlib/ring/segment.h"
#include "server/cache/arena.h"
#include "server/placement/topology.h"
#include "server/source/formats/pixel_table.h"
#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"

namespace headrace::testing {
namespace {

using namespace server::placement;

constexpr std::size_t kBytes = 8 * kHugePage;

std::vector<int> nodes_with_memory() {
  std::vector<int> out;
  for (const Node& node : read_nodes())
    if (node.memory) out.push_back(node.id);
  return out;
}

/// The memory policy's mode of the calling thread, or of an address.
int policy(const void* address = nullptr) {
  int mode = -1;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the C function reads no more than the address
  ::get_mempolicy(&mode, nullptr, 0, const_cast<void*>(address), address != nullptr ? MPOL_F_ADDR : 0);
  return mode;
}

/// The number of these bytes' pages on each node.
std::map<int, std::size_t> pages_by_node(const void* memory, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<void*> pages;
  auto at = (reinterpret_cast<std::uintptr_t>(memory) + page - 1) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): pages are numbers
  for (; at < reinterpret_cast<std::uintptr_t>(memory) + bytes; at += page)
    pages.push_back(reinterpret_cast<void*>(at));
  std::vector<int> status(pages.size(), -1);
  EXPECT_EQ(::move_pages(0, pages.size(), pages.data(), nullptr, status.data(), 0), 0);
  std::map<int, std::size_t> out;
  for (const int node : status) ++out[node];
  return out;
}

class Numa : public ::testing::Test {
 protected:
  void SetUp() override {
    if (nodes_.empty() || ::get_mempolicy(nullptr, nullptr, 0, nullptr, 0) != 0 ||
        ::move_pages(0, 0, nullptr, nullptr, nullptr, MPOL_MF_MOVE) != 0)
      GTEST_SKIP() << "this kernel or container has no memory policies";
    if (policy() != MPOL_DEFAULT) GTEST_SKIP() << "this process was started with a memory policy (numactl)";
  }
  /// Each node has at least three quarters of an equal share of the pages, and no page is on another node.
  void expect_interleaved(const void* memory, std::size_t bytes) const {
    const auto found = pages_by_node(memory, bytes);
    std::size_t total = 0;
    for (const auto& [node, count] : found) total += count;
    for (const int node : nodes_)
      EXPECT_GE(found.count(node) ? found.at(node) : 0, total / nodes_.size() * 3 / 4) << "node " << node;
    EXPECT_EQ(found.size(), nodes_.size()) << "first: " << found.begin()->first;
  }
  const std::vector<int> nodes_ = nodes_with_memory();
};

TEST_F(Numa, MemoryIsInterleavedWhileTheGuardLives) {
  {
    const InterleavedMemory interleaved(nodes_);
    EXPECT_EQ(policy(), MPOL_INTERLEAVE);
    std::thread([] { EXPECT_EQ(policy(), MPOL_INTERLEAVE) << "the policy while a source is read"; }).join();
  }
  EXPECT_EQ(policy(), MPOL_DEFAULT);
  const InterleavedMemory none(std::vector<int>{});
  EXPECT_EQ(policy(), MPOL_DEFAULT);
}

TEST_F(Numa, AnInheritedMemoryPolicyIsKept) {
  unsigned long mask = 1UL << nodes_.front();
  ASSERT_EQ(::set_mempolicy(MPOL_PREFERRED, &mask, 65), 0);
  {
    const InterleavedMemory interleaved(nodes_);
    EXPECT_EQ(policy(), MPOL_PREFERRED);
  }
  EXPECT_EQ(policy(), MPOL_PREFERRED);
  ASSERT_EQ(::set_mempolicy(MPOL_DEFAULT, nullptr, 0), 0);
}

TEST_F(Numa, NonexistentNodesAreIgnored) {
  const InterleavedMemory interleaved(std::vector<int>{1000, 1023, 70000});
  EXPECT_EQ(policy(), MPOL_DEFAULT);
}

TEST_F(Numa, ARingIsInterleaved) {
  std::optional<InterleavedMemory> interleaved(std::in_place, nodes_);
  const auto segment = ring::Segment::create("numa", kBytes, ring::ClientAccess::kReadWrite);
  interleaved.reset();
  ASSERT_TRUE(segment);
  expect_interleaved(segment->data(), kBytes);
}

TEST_F(Numa, ACacheIsInterleavedWhicheverThreadFillsIt) {
  std::optional<InterleavedMemory> interleaved(std::in_place, nodes_);
  const auto arena = server::cache::Arena::create("a", kBytes).value();
  interleaved.reset();
  std::byte* const memory = arena->allocate(kBytes);
  EXPECT_EQ(policy(memory), MPOL_INTERLEAVE);
  std::thread([&] { std::fill_n(memory, kBytes, std::byte{1}); }).join();
  expect_interleaved(memory, kBytes);

  const auto plain = server::cache::Arena::create("b", kBytes).value();
  EXPECT_EQ(policy(plain->allocate(64)), MPOL_DEFAULT) << "this arena was created without InterleavedMemory";
}

TEST_F(Numa, ADatasetInMemoryIsInterleavedIncludingHugePages) {
  std::optional<InterleavedMemory> interleaved(std::in_place, nodes_);
  server::source::PixelTable table;
  table.shape = {64, 64, 1, false};
  table.files.push_back({"f", std::vector<std::uint8_t>(kBytes, 9), 0, 4096, kBytes / 4096});
  table.labels.resize(kBytes / 4096);
  table.classes = {"0"};
  const auto source = server::source::make_pixel_source(std::move(table));
  interleaved.reset();
  server::source::Sample sample;
  ASSERT_TRUE(source->read(0, sample));
  expect_interleaved(sample.item(0).bytes.data(), kBytes);
}

/// Records the allowed CPUs of each reading thread.
class RecordingSource final : public ForwardingSource {
 public:
  explicit RecordingSource(std::shared_ptr<const server::source::Source> inner)
      : ForwardingSource(std::move(inner)) {}
  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    const std::scoped_lock lock(mutex_);
    seen_.insert(allowed_cpus());
    return ForwardingSource::read(index, out);
  }
  [[nodiscard]] std::set<std::vector<int>> seen() const {
    const std::scoped_lock lock(mutex_);
    return seen_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::set<std::vector<int>> seen_;
};

TEST(NumaWorkers, RunOnTheirHomeNode) {
  const auto allowed = allowed_cpus();
  const std::vector<int> last{allowed.back()};
  const auto recording = std::make_shared<RecordingSource>(server::source::make_synthetic(400, 24).value());
  StreamSetup setup = synthetic_stream("s", 400, 8, 1);
  setup.maker = make_samples(recording, {.seed = 5});
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(Stream::create(std::move(setup)).value());
  Engine engine(std::move(streams), 2, {.homes = {{0, last}}, .workers = {0, 0}, .memory = {}});
  engine.start();
  {
    RingClient client(engine, "s", "c");
    ASSERT_TRUE(client.next());
  }
  engine.stop();
  EXPECT_THAT(recording->seen(), ::testing::ElementsAre(last));
  EXPECT_EQ(allowed_cpus(), allowed) << "the thread that created the engine may run anywhere, as before";
}

TEST(NumaWorkers, KeepTheirCpusIfTheHomeNodeCannotBeSet) {
  std::thread([] {
    const auto before = allowed_cpus();
    run_on(std::vector<int>{60000});
    run_on(std::vector<int>{});
    EXPECT_EQ(allowed_cpus(), before);
  }).join();
}

}  // namespace
}  // namespace headrace::testing
