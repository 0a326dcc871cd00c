// Private and guarded batches at moments that are hard to hit: this program's own pread(), getrusage() and
// operator new[] fork, count or fail on demand.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "clientlib/ring/private_pages.h"
#include "headrace/client.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"

namespace {

thread_local bool t_watched =
    false;  ///< set for the test's own thread only, because the server's threads are in this process
std::atomic<int> g_fork_at{0};  ///< another thread forks before the n-th check of pages or faults from now
std::atomic<int> g_checks{0};   ///< checks of pages
std::atomic<bool> g_no_memory{false};

void fork_elsewhere() {
  std::thread([] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
  }).join();
}

}  // namespace

extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  if (t_watched) ++g_checks;
  if (t_watched && g_fork_at > 0 && --g_fork_at == 0) fork_elsewhere();
  return ::syscall(SYS_pread64, fd, to, bytes, at);
}

extern "C" int getrusage(__rusage_who_t who, rusage* usage) noexcept {
  if (t_watched && g_fork_at > 0 && --g_fork_at == 0) fork_elsewhere();
  return static_cast<int>(::syscall(SYS_getrusage, who, usage));
}

void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  if (g_no_memory && bytes > 100'000) throw std::bad_alloc();
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

namespace headrace {
namespace {

using namespace std::chrono_literals;

class PrivateBatchHazards : public testing::Test {
 protected:
  void SetUp() override {
    if (!ring::PrivatePages::open()) GTEST_SKIP() << "this kernel has no copy-on-write views";
    server_.emplace(directory_, 40, 100'000, "batch_size: 8, ring: { max_leases: 3 }");
    t_watched = true;
  }
  void TearDown() override { t_watched = false; }
  [[nodiscard]] Stream open(Batches batches = Batches::kPrivate) const {
    const OpenOptions options{.stream = "train", .batches = batches};
    return Client::connect({.address = directory_}).value().open(options).value();
  }
  static BatchView next(Stream& stream) {
    for (;;)  // past the epoch's end
      if (auto batch = stream.next(20s).value()) return std::move(*batch);
  }
  static std::vector<std::byte> bytes_of(const BatchView& batch) {
    const FieldView field = batch.field("data").value();
    return {field.data, field.data + field.bytes()};
  }

  /// Over all its bytes; allocates nothing, because new pages would be faults.
  static std::uint64_t sum_of(const BatchView& batch) {
    const FieldView field = batch.field("data").value();
    return std::accumulate(
        field.data, field.data + field.bytes(), std::uint64_t{0},
        [](std::uint64_t sum, std::byte b) { return sum * 31 + static_cast<unsigned>(b); });
  }

  TempFolder folder_;
  const std::string directory_ = folder_.path().string();
  std::optional<RunningServer> server_;
};

TEST_F(PrivateBatchHazards, AForkInAnotherThreadWhileABatchIsMadeIsAForkBeforeOrAfterIt) {
  for (int look = 1; look <= 3; ++look) {  // at faults, at the first page, at the last one
    std::optional<Stream> stream = open();
    Stream other = open();
    g_fork_at = look;
    const BatchView batch = next(*stream);
    ASSERT_EQ(g_fork_at, 0);
    const auto before = bytes_of(batch);
    stream.reset();  // its slot is refilled, except for the batch's own pages
    for (int i = 0; i < 30; ++i) next(other);
    EXPECT_EQ(bytes_of(batch), before) << look;
  }
}

TEST_F(PrivateBatchHazards, ACopyThatGetsNoMemoryIsANamedErrorAndLosesNeitherBatchNorLease) {
  Stream stream = open();
  Stream reference = open();
  for (int round = 0; round < 6; ++round) {
    std::vector<BatchView> held;  // so many that the next one must be a copy
    for (int i = 0; i < 2; ++i) {
      held.push_back(next(stream));
      EXPECT_EQ(bytes_of(held.back()), bytes_of(next(reference)));
    }
    const bool at_the_end = stream.cursor().batch == 0;
    g_no_memory = true;
    const auto refused = stream.next(5s);
    g_no_memory = false;
    if (at_the_end) continue;  // the epoch's end needs no memory
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kNotEnoughMemory) << refused.error().to_string();
  }
}

TEST_F(PrivateBatchHazards,
       ALoopThatOnlyReadsLooksAtNoPagesAndOneThatWritesAllTheSameSeesTheServersBytesNext) {
  Stream stream = open(Batches::kGuarded);
  Stream reference = open(Batches::kShared);
  int quiet = 0;  // rounds without a check
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 120; ++i) {
      const int looks = g_checks;
      {
        const BatchView batch = next(stream);
        ASSERT_EQ(sum_of(batch), sum_of(next(reference))) << i;
      }
      if (g_checks == looks) ++quiet;
    }
    const BatchView batch = next(stream);
    next(reference);
    const FieldView field = batch.field("data").value();
    const_cast<std::byte&>(field.data[field.bytes() / 2]) ^= std::byte{1};
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose own memory is new in each round
  EXPECT_GT(quiet, 120)
      << "of 360 rounds: once the slots are mapped, only a round after a fault checks pages";
#endif
}

/// A process that writes a byte at given addresses of this one.
class Peer {
 public:
  Peer() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    child_ = ::fork();  // before the first batch, because a fork makes a batch's pages this process's own
    if (child_ != 0) return;
    ::close(ends_[0]);
    for (std::byte* to = nullptr; ::recv(ends_[1], &to, sizeof to, 0) == sizeof to;) {
      std::byte theirs{77};
      const iovec from{&theirs, 1}, into{to, 1};
      const bool written = ::process_vm_writev(::getppid(), &from, 1, &into, 1, 0) == 1;
      ::send(ends_[1], &written, sizeof written, 0);
    }
    ::_exit(0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    ::close(ends_[0]);
    ::close(ends_[1]);
    ::waitpid(child_, nullptr, 0);
  }
  [[nodiscard]] bool writes_to(std::byte* to) const {
    bool written = false;
    return ::send(ends_[0], &to, sizeof to, 0) == sizeof to &&
           ::recv(ends_[0], &written, sizeof written, 0) == sizeof written && written;
  }

 private:
  int ends_[2]{-1, -1};
  pid_t child_ = -1;
};

TEST_F(PrivateBatchHazards, WhatAnotherProcessWritesIntoAPrivateBatchIsInNoLaterOne) {
  const Peer peer;
  Stream stream = open();
  Stream reference = open(Batches::kShared);
  for (int i = 0; i < 120; ++i) {
    const BatchView batch = next(stream);
    ASSERT_EQ(sum_of(batch), sum_of(next(reference))) << i;
    if (i != 60) continue;  // by then all slots are mapped, and only the peer's write makes a page own
    std::byte* to = batch.field("data").value().writable + 50'000;
    if (!peer.writes_to(to)) GTEST_SKIP() << "a process may not write to its parent here";
    ASSERT_EQ(*to, std::byte{77});
  }
}

}  // namespace
}  // namespace headrace
