// The placement of workers and memory on simulated machines.
#include "server/placement/placement.h"
#include "tests/temp_folder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

namespace headrace::server::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> range(int first, int count) {
  std::vector<int> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

Node node(int id, std::vector<int> cpus, bool memory = true) {
  return {.id = id, .cpus = std::move(cpus), .memory = memory};
}

/// The number of workers on each node.
std::vector<long> counts(const Placement& placement) {
  std::vector<long> out;
  for (std::size_t i = 0; i < placement.homes.size(); ++i)
    out.push_back(std::count(placement.workers.begin(), placement.workers.end(), i));
  return out;
}

const std::vector<Node> kTwo = {node(0, range(0, 8)), node(1, range(8, 8))};

TEST(Placement, OnOneNodeOrNoneIsNothing) {
  EXPECT_TRUE(place({}, range(0, 8), 8).empty());
  EXPECT_TRUE(place(std::vector{node(0, range(0, 8))}, range(0, 8), 8).empty());
  EXPECT_TRUE(place(kTwo, {}, 8).empty());
  EXPECT_TRUE(place(kTwo, range(0, 16), 0).empty());
}

TEST(Placement, SharesOutWorkersInTurnAndKeepsThemOnAllOfTheirNode) {
  const Placement placement = place(kTwo, range(0, 16), 5);
  EXPECT_THAT(placement.workers, ElementsAre(0, 1, 0, 1, 0));
  EXPECT_EQ(placement.homes[0].cpus, range(0, 8));
  EXPECT_EQ(placement.homes[1].cpus, range(8, 8));
  EXPECT_THAT(placement.memory, ElementsAre(0, 1));
  EXPECT_EQ(to_string(placement),
            "3 workers on node 0, 2 on node 1; rings, caches and sets in memory on nodes 0, 1 in turn");
}

TEST(Placement, GivesAsManyWorkersAsCpusOneEach) {
  const std::vector<Node> nodes = {node(0, range(0, 3)), node(1, range(3, 1)), node(2, range(4, 7))};
  EXPECT_THAT(counts(place(nodes, range(0, 11), 11)), ElementsAre(3, 1, 7));
  EXPECT_THAT(counts(place(nodes, range(0, 11), 22)), ElementsAre(6, 2, 14));
}

TEST(Placement, KeepsToTheAllowedCpus) {
  const std::vector<int> allowed = {1, 2, 9, 99};
  const Placement placement = place(kTwo, allowed, 3);
  EXPECT_THAT(placement.homes[0].cpus, ElementsAre(1, 2));
  EXPECT_THAT(placement.homes[1].cpus, ElementsAre(9));
  EXPECT_THAT(counts(placement), ElementsAre(2, 1));
  // A process that is confined to one node needs no placement.
  EXPECT_TRUE(place(kTwo, range(8, 8), 8).empty());
}

TEST(Placement, OmitsNodesWithoutCpus) {
  const std::vector<Node> nodes = {node(0, range(0, 4)), node(2, {}), node(5, range(4, 4)), node(6, {})};
  const Placement placement = place(nodes, range(0, 8), 8);
  ASSERT_EQ(placement.homes.size(), 2U);
  EXPECT_EQ(placement.homes[1].node, 5);
  EXPECT_THAT(placement.memory, ElementsAre(0, 5));
  EXPECT_TRUE(place(std::vector{node(0, range(0, 4)), node(1, {})}, range(0, 4), 4).empty());
}

TEST(Placement, PutsNoMemoryWhereThereIsNone) {
  std::vector<Node> nodes = {node(0, range(0, 4)), node(1, range(4, 4), false), node(2, range(8, 4))};
  EXPECT_THAT(place(nodes, range(0, 12), 12).memory, ElementsAre(0, 2));
  nodes[2].memory = false;
  const Placement one = place(nodes, range(0, 12), 12);
  EXPECT_THAT(counts(one), ElementsAre(4, 4, 4));
  EXPECT_THAT(one.memory, IsEmpty()) << "with one node there is nothing to alternate";
  EXPECT_EQ(to_string(one), "4 workers on node 0, 4 on node 1, 4 on node 2");
}

TEST(Placement, OfFewerWorkersThanNodesUsesTheLargestNodesAndTheirMemoryAlone) {
  const std::vector<Node> nodes = {node(0, range(0, 2)), node(1, range(2, 8)), node(2, range(10, 2)),
                                   node(3, range(12, 8))};
  const Placement placement = place(nodes, range(0, 20), 2);
  EXPECT_THAT(counts(placement), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(placement.memory, ElementsAre(1, 3));
  EXPECT_EQ(to_string(placement),
            "1 worker on node 1, 1 on node 3; rings, caches and sets in memory on nodes 1, 3 in turn");
  EXPECT_TRUE(place(nodes, range(0, 20), 1).empty());
}

class NodesOf : public testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) const {
    folder_.put("sys/devices/system/node/" + file, text);
  }
  void allow(const std::string& list) const {
    folder_.put("proc/self/status", "Name:\tx\nMems_allowed:\tff\nMems_allowed_list:\t" + list + "\n");
  }
  [[nodiscard]] std::vector<Node> read() const { return read_nodes(folder_.path()); }
  TempFolder folder_;
};

TEST_F(NodesOf, AMachineAreReadFromSysfs) {
  put("online", "0-1,4\n");
  put("has_memory", "0,4\n");
  put("node0/cpulist", "0-3,8-11\n");
  put("node1/cpulist", "4-7\n");
  put("node4/cpulist", "\n");
  allow("0-4");
  const auto nodes = read();
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_THAT(nodes[0].cpus, ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_TRUE(nodes[0].memory);
  EXPECT_THAT(nodes[1].cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_FALSE(nodes[1].memory);
  EXPECT_EQ(nodes[2].id, 4);
  EXPECT_THAT(nodes[2].cpus, IsEmpty());
  EXPECT_TRUE(nodes[2].memory);
}

TEST_F(NodesOf, MemoryOutsideOfTheCpusetIsNone) {
  put("online", "0-1\n");
  put("has_memory", "0-1\n");
  put("node0/cpulist", "0\n");
  put("node1/cpulist", "1\n");
  allow("1");
  const auto nodes = read();
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_FALSE(nodes[0].memory);
  EXPECT_TRUE(nodes[1].memory);
}

TEST_F(NodesOf, AMachineThatTellsNothingAreNone) {
  EXPECT_THAT(read(), IsEmpty());
}

TEST_F(NodesOf, GarbageAreBounded) {
  allow("\t");
  for (const char* text : {"x", "-", "-1", "3-1", "0-99999999999", "0-70000000", "1,,2", "0-"}) {
    put("online", text);
    put("node0/cpulist", text);
    EXPECT_LE(read().size(), 1U) << text;
  }
}

TEST(NodesOfThisMachine, HoldTheAllowedCpus) {
  const auto nodes = read_nodes();
  if (nodes.empty()) GTEST_SKIP() << "the kernel reports no nodes";
  const auto allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  for (const int cpu : allowed)
    EXPECT_EQ(std::count_if(nodes.begin(), nodes.end(),
                            [&](const Node& n) {
                              return std::find(n.cpus.begin(), n.cpus.end(), cpu) != n.cpus.end();
                            }),
              1)
        << "CPU " << cpu;
  EXPECT_TRUE(std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.memory; }));
}

}  // namespace
}  // namespace headrace::server::placement
