// The calls that place workers and memory on this machine's nodes. With one node they are also made, and
// everything is on it. With several, pages must alternate between them.
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
std::map<int, std::size_t> where(const void* memory, std::size_t bytes) {
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
    if (policy() != MPOL_DEFAULT) GTEST_SKIP() << "the test was started with a policy of its own";
  }
  /// All nodes have the same share, except for the last, incomplete round.
  void expect_in_turn(const void* memory, std::size_t bytes) const {
    const auto found = where(memory, bytes);
    std::size_t total = 0;
    for (const auto& [node, count] : found) total += count;
    for (const int node : nodes_)
      EXPECT_GE(found.count(node) ? found.at(node) : 0, total / nodes_.size() * 3 / 4) << "node " << node;
    EXPECT_EQ(found.size(), nodes_.size()) << "first: " << found.begin()->first;
  }
  const std::vector<int> nodes_ = nodes_with_memory();
};

TEST_F(Numa, MemoryIsInterleavedAsLongAsItIsAskedFor) {
  {
    const InterleavedMemory interleaved(nodes_);
    EXPECT_EQ(policy(), MPOL_INTERLEAVE);
    std::thread([] { EXPECT_EQ(policy(), MPOL_INTERLEAVE) << "the policy while a source is read"; }).join();
  }
  EXPECT_EQ(policy(), MPOL_DEFAULT);
  const InterleavedMemory none(std::vector<int>{});
  EXPECT_EQ(policy(), MPOL_DEFAULT);
}

TEST_F(Numa, APolicyThatTheProcessCameWithStays) {
  unsigned long mask = 1UL << nodes_.front();
  ASSERT_EQ(::set_mempolicy(MPOL_PREFERRED, &mask, 65), 0);
  {
    const InterleavedMemory interleaved(nodes_);
    EXPECT_EQ(policy(), MPOL_PREFERRED);
  }
  EXPECT_EQ(policy(), MPOL_PREFERRED);
  ASSERT_EQ(::set_mempolicy(MPOL_DEFAULT, nullptr, 0), 0);
}

TEST_F(Numa, NodesThatAreNotThereChangeNothing) {
  const InterleavedMemory interleaved(std::vector<int>{1000, 1023, 70000});
  EXPECT_EQ(policy(), MPOL_DEFAULT);
}

TEST_F(Numa, ARingIsInterleaved) {
  std::optional<InterleavedMemory> interleaved(std::in_place, nodes_);
  const auto segment = ring::Segment::create("numa", kBytes, ring::ClientAccess::kReadWrite);
  interleaved.reset();
  ASSERT_TRUE(segment);
  expect_in_turn(segment->data(), kBytes);
}

TEST_F(Numa, ACacheIsInterleavedWhicheverThreadFillsIt) {
  std::optional<InterleavedMemory> interleaved(std::in_place, nodes_);
  const auto arena = server::cache::Arena::create("a", kBytes).value();
  interleaved.reset();
  std::byte* const memory = arena->allocate(kBytes);
  EXPECT_EQ(policy(memory), MPOL_INTERLEAVE);
  std::thread([&] { std::fill_n(memory, kBytes, std::byte{1}); }).join();
  expect_in_turn(memory, kBytes);

  const auto plain = server::cache::Arena::create("b", kBytes).value();
  EXPECT_EQ(policy(plain->allocate(64)), MPOL_DEFAULT) << "made outside";
}

TEST_F(Numa, ASetInMemoryIsInterleavedHugePagesIncluded) {
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
  expect_in_turn(sample.item(0).bytes.data(), kBytes);
}

/// Records the allowed CPUs of each reading thread.
class Noting final : public ForwardingSource {
 public:
  explicit Noting(std::shared_ptr<const server::source::Source> inner) : ForwardingSource(std::move(inner)) {}
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
  const auto noting = std::make_shared<Noting>(server::source::make_synthetic(400, 24).value());
  StreamSetup setup = synthetic_stream("s", 400, 8, 1);
  setup.maker = make_samples(noting, {.seed = 5});
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(Stream::create(std::move(setup)).value());
  Engine engine(std::move(streams), 2, {.homes = {{0, last}}, .workers = {0, 0}, .memory = {}});
  engine.start();
  {
    RingClient client(engine, "s", "c");
    ASSERT_TRUE(client.next());
  }
  engine.stop();
  EXPECT_THAT(noting->seen(), ::testing::ElementsAre(last));
  EXPECT_EQ(allowed_cpus(), allowed) << "the thread that created the engine may run anywhere, as before";
}

TEST(NumaWorkers, RunAnywayWhereTheirHomeIsRefused) {
  std::thread([] {
    const auto before = allowed_cpus();
    run_on(std::vector<int>{60000});
    run_on(std::vector<int>{});
    EXPECT_EQ(allowed_cpus(), before);
  }).join();
}

}  // namespace
}  // namespace headrace::testing
