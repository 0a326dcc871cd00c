#include "clientlib/ring/segment.h"
#include "tests/temp_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace headrace::ring {
namespace {

constexpr std::size_t kBytes = 8192;

Segment make(ClientAccess access) {
  auto segment = Segment::create("test", kBytes, access);
  EXPECT_TRUE(segment.has_value()) << segment.error().to_string();
  return std::move(*segment);
}

UniqueFd duplicate(const Segment& segment) {
  return UniqueFd(::fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0));
}

void* map_shared(int fd, int protection) {
  return ::mmap(nullptr, kBytes, protection, MAP_SHARED, fd, 0);
}

TEST(Segment, BeginsAsZeroesAndIsSharedByItsMappings) {
  Segment server = make(ClientAccess::kReadWrite);
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(server.data()[i], std::byte{0});
  auto client = Segment::map(duplicate(server), Access::kReadWrite, kBytes);
  ASSERT_TRUE(client.has_value());
  std::memset(server.data() + 100, 7, 10);
  EXPECT_EQ(client->data()[105], std::byte{7});
  EXPECT_EQ(client->size(), kBytes);
}

TEST(Segment, CannotBeResizedOrSealedThroughItsDescriptor) {
  const Segment segment = make(ClientAccess::kReadWrite);
  EXPECT_EQ(::ftruncate(segment.fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(segment.fd(), kBytes * 2), -1);
  EXPECT_EQ(::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Segment, RefusesWritableMappingsWhenClientsMayOnlyReadButStaysWritableForTheServer) {
  const Segment segment = make(ClientAccess::kReadOnly);
  EXPECT_EQ(map_shared(segment.fd(), PROT_READ | PROT_WRITE), MAP_FAILED);
  void* view = map_shared(segment.fd(), PROT_READ);
  ASSERT_NE(view, MAP_FAILED);
  EXPECT_EQ(::mprotect(view, kBytes, PROT_READ | PROT_WRITE), -1);
  segment.data()[5] = std::byte{9};
  EXPECT_EQ(static_cast<const std::byte*>(view)[5], std::byte{9});
  ::munmap(view, kBytes);
  EXPECT_FALSE(clients_may_write(segment.fd()));
  EXPECT_TRUE(clients_may_write(make(ClientAccess::kReadWrite).fd()));
}

TEST(Segment, HasAllItsPagesFromTheStart) {
  const Segment segment = make(ClientAccess::kReadOnly);
  struct stat status {};
  ASSERT_EQ(::fstat(segment.fd(), &status), 0);
  EXPECT_GE(static_cast<std::size_t>(status.st_blocks) * 512, kBytes);
}

TEST(Segment, IsNotInheritedByAnExecutedProgram) {
  const Segment segment = make(ClientAccess::kReadOnly);
  EXPECT_NE(::fcntl(segment.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Segment, KeepsItsMappingWhenItsDescriptorIsGivenAway) {
  Segment segment = make(ClientAccess::kReadWrite);
  segment.take_fd().reset();
  EXPECT_LT(segment.fd(), 0);
  segment.data()[0] = std::byte{1};
  EXPECT_EQ(segment.data()[0], std::byte{1});
}

void expect_bad_message(UniqueFd fd, std::size_t min_bytes) {
  const auto mapped = Segment::map(std::move(fd), Access::kReadOnly, min_bytes);
  ASSERT_FALSE(mapped.has_value());
  EXPECT_EQ(mapped.error().code, ErrorCode::kBadMessage) << mapped.error().message;
}

TEST(Segment, RefusesAnUnsealedDescriptor) {
  UniqueFd unsealed(::memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  expect_bad_message(std::move(unsealed), 1);
}

TEST(Segment, RefusesADescriptorSealedAgainstGrowingOnly) {
  UniqueFd half(::memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(half.get(), kBytes), 0);
  ASSERT_EQ(::fcntl(half.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  expect_bad_message(std::move(half), 1);
}

TEST(Segment, RefusesAShortDescriptor) {
  expect_bad_message(duplicate(make(ClientAccess::kReadOnly)), kBytes + 1);
}

TEST(Segment, RefusesWhatIsNoMemoryAtAll) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  expect_bad_message(UniqueFd(ends[0]), 1);
  expect_bad_message(UniqueFd(ends[1]), 1);
  expect_bad_message(UniqueFd(), 1);
}

TEST(Segment, NamesNeededAndAvailableWhenMemoryIsShort) {
  const auto segment = Segment::create("test", std::size_t{1} << 55, ClientAccess::kReadOnly);
  ASSERT_FALSE(segment.has_value());
  EXPECT_EQ(segment.error().code, ErrorCode::kNotEnoughMemory);
  EXPECT_NE(segment.error().message.find("needs 36028.80 TB"), std::string::npos) << segment.error().message;
  EXPECT_NE(segment.error().message.find("are left ("), std::string::npos) << segment.error().message;
}

// --- headroom, over invented /proc and cgroup trees

class Machine {
 public:
  void write(const std::string& path, const std::string& text) const { folder_.put(path.substr(1), text); }
  void write_version_2(const std::string& group, const std::string& mounted_group) const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo", "22 27 0:21 / /proc rw,relatime - proc proc rw\n31 23 0:28 " +
                                      mounted_group +
                                      " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  [[nodiscard]] MemoryHeadroom headroom(std::uint64_t freed = 0) const {
    return memory_headroom(folder_.path().string(), freed);
  }

 private:
  TempFolder folder_;
};

TEST(MemoryHeadroom, CountsCgroupVersion2WithoutReclaimableFileCache) {
  const Machine machine;
  machine.write_version_2("/job/task", "/");
  machine.write("/sys/fs/cgroup/job/task/memory.max", "1000000\n");
  machine.write("/sys/fs/cgroup/job/task/memory.current", "700000\n");
  machine.write("/sys/fs/cgroup/job/task/memory.stat",
                "anon 400000\nactive_file 100000\ninactive_file 50000\n");
  EXPECT_EQ(machine.headroom().bytes, 450000U);
  EXPECT_EQ(machine.headroom().limited_by, "cgroup memory.max");
}

TEST(MemoryHeadroom, TakesTheTightestGroupOnTheWayUp) {
  const Machine machine;
  machine.write_version_2("/job/task", "/");
  machine.write("/sys/fs/cgroup/job/task/memory.max", "max\n");
  machine.write("/sys/fs/cgroup/job/task/memory.current", "10\n");
  machine.write("/sys/fs/cgroup/job/memory.max", "5000\n");
  machine.write("/sys/fs/cgroup/job/memory.current", "4990\n");
  EXPECT_EQ(machine.headroom().bytes, 10U);
}

TEST(MemoryHeadroom, FindsItsGroupInsideAContainerWithoutANamespace) {
  const Machine machine;
  machine.write("/proc/self/cgroup", "4:memory:/docker/abc\n1:cpu:/docker/abc\n");
  machine.write("/proc/self/mountinfo",
                "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n");
  machine.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  machine.write("/sys/fs/cgroup/memory/memory.stat", "inactive_file 999\ntotal_inactive_file 250\n");
  EXPECT_EQ(machine.headroom().bytes, 2250U);
  EXPECT_EQ(machine.headroom().limited_by, "cgroup memory.limit_in_bytes");
}

TEST(MemoryHeadroom, IsZeroWhenMoreIsUsedThanAllowed) {
  const Machine machine;
  machine.write_version_2("/", "/");
  machine.write("/sys/fs/cgroup/memory.max", "100\n");
  machine.write("/sys/fs/cgroup/memory.current", "200\n");
  EXPECT_EQ(machine.headroom().bytes, 0U);
}

TEST(MemoryHeadroom, FallsBackToTheMachinesAvailableMemory) {
  const Machine machine;
  machine.write("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable:   300 kB\n");
  EXPECT_EQ(machine.headroom().bytes, 300U * 1024);
  EXPECT_EQ(machine.headroom().limited_by, "MemAvailable");
}

TEST(MemoryHeadroom, GrowsByWhatAnotherProcessWillFreeUpToTheLimits) {
  const Machine machine;
  machine.write("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable:   300 kB\n");
  EXPECT_EQ(machine.headroom(100 * 1024).bytes, 400U * 1024);
  EXPECT_EQ(machine.headroom(10'000'000).bytes, 900U * 1024) << "not more than the machine has";
  machine.write_version_2("/", "/");
  machine.write("/sys/fs/cgroup/memory.max", "10000\n");
  machine.write("/sys/fs/cgroup/memory.current", "7000\n");
  EXPECT_EQ(machine.headroom(2000).bytes, 5000U);
  EXPECT_EQ(machine.headroom(10'000'000).bytes, 10000U) << "not more than the group may use";
}

TEST(MemoryHeadroom, KnowsTheAddressSpaceLimit) {
  const pid_t child = ::fork();
  if (child == 0) {
    // More than any program uses: ThreadSanitizer alone reserves most of the address space.
    const rlimit limit{.rlim_cur = std::uint64_t{1} << 47, .rlim_max = std::uint64_t{1} << 47};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(2);
    const MemoryHeadroom least = memory_headroom("/nowhere");
    const bool limited = least.limited_by == "RLIMIT_AS (ulimit -v)" && least.bytes == limit.rlim_cur;
    ::_exit(limited && mapped_headroom("/nowhere").limited_by == "nothing" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(MemoryHeadroom, IsPositiveOnThisMachine) {
  EXPECT_GT(memory_headroom().bytes, 0U);
  EXPECT_FALSE(memory_headroom().limited_by.empty());
}

}  // namespace
}  // namespace headrace::ring
