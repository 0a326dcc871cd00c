#include "server/config/cpus.h"
#include "tests/temp_folder.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace headrace::server::config {
namespace {

namespace fs = std::filesystem;

unsigned mask_size() {
  cpu_set_t set;
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  return static_cast<unsigned>(CPU_COUNT(&set));
}

class Cpus : public testing::Test {
 protected:
  void put(const fs::path& file, const std::string& content) const { folder_.put(file, content); }

  TempFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(Cpus, WithoutCgroupsAreTheAffinityMask) {
  EXPECT_EQ(default_threads(root_), mask_size());
}

TEST_F(Cpus, WithoutALimitAreTheAffinityMask) {
  put("proc/self/cgroup", "0::/a\n");
  put("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(default_threads(root_), mask_size());
}

TEST_F(Cpus, FollowTheQuotaOfVersionTwoRoundedUp) {
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(default_threads(root_), 1U);
  put("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(default_threads(root_), std::min(2U, mask_size()));
  put("sys/fs/cgroup/cpu.max", "9900000 100000\n");
  EXPECT_EQ(default_threads(root_), std::min(99U, mask_size()));
}

TEST_F(Cpus, FollowTheTightestGroupAbove) {
  put("proc/self/cgroup", "0::/pod/container\n");
  put("sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
  put("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(default_threads(root_), 1U);
}

TEST_F(Cpus, FollowTheQuotaOfVersionOne) {
  put("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/docker/x\n0::/\n");
  put("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "100000\n");
  put("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(default_threads(root_), 1U);
  put("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(default_threads(root_), mask_size());
}

TEST_F(Cpus, FollowTheRootWhereThePathIsTheHosts) {
  put("proc/self/cgroup", "4:cpu:/docker/not/mounted/here\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(default_threads(root_), 1U);
}

TEST_F(Cpus, SurviveGarbage) {
  put("proc/self/cgroup", "\n:\n::\nx:y\n0::/../../a\n");
  put("sys/fs/cgroup/cpu.max", "garbage");
  EXPECT_EQ(default_threads(root_), mask_size());
}

TEST(CpusOfThisMachine, AreAtLeastOne) {
  EXPECT_GE(default_threads(), 1U);
}

}  // namespace
}  // namespace headrace::server::config
