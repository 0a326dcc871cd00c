#include "clientlib/ring/futex.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <thread>

#include "tests/unit/ring_harness.h"

namespace headrace::ring::testing {
namespace {

TEST(Futex, WakesAnotherProcessThatHasOnlyAReadOnlyMapping) {
  auto server = value_or_die(Segment::create("futex", 4096, ClientAccess::kReadOnly));
  auto& word = *reinterpret_cast<std::atomic<std::uint32_t>*>(server.data());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto mine = Segment::map(UniqueFd(::dup(server.fd())), Access::kReadOnly, 4096);
    if (!mine || mine->data() == server.data()) ::_exit(3);
    // Unmap the inherited writable mapping, so that only the read-only one is used below.
    ::munmap(server.data(), 4096);
    const auto& watched = *reinterpret_cast<const std::atomic<std::uint32_t>*>(mine->data());
    if (::write(ready[1], "r", 1) != 1) ::_exit(3);
    // Each sleep ends by itself after 100 ms: this takes ten minutes only if every wake is lost.
    for (int i = 0; i < 6000 && watched.load(std::memory_order_acquire) == 0; ++i)
      futex_wait(watched, 0, std::chrono::hours(1));
    ::_exit(watched.load() == 1 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::usleep(2000);
  word.store(1, std::memory_order_release);
  futex_wake_all(word);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ::close(ready[0]);
  ::close(ready[1]);
}

// The count that FUTEX_WAKE returns proves that both mappings are one futex, without timing anything.
TEST(Futex, IsTheSameForAReadOnlyAndAWritableMapping) {
  auto server = value_or_die(Segment::create("futex", 4096, ClientAccess::kReadOnly));
  auto client = value_or_die(Segment::map(UniqueFd(::dup(server.fd())), Access::kReadOnly, 4096));
  auto& word = *reinterpret_cast<std::atomic<std::uint32_t>*>(server.data());
  const auto& watched = *reinterpret_cast<const std::atomic<std::uint32_t>*>(client.data());
  std::atomic<bool> over{false};
  std::thread sleeper([&] {
    while (!over) futex_wait(watched, 0, kLongestSleep);
  });
  long woken = 0;
  for (int i = 0; i < 100000 && woken == 0; ++i) {
    woken = ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    std::this_thread::yield();
  }
  over = true;
  word = 1;
  futex_wake_all(word);
  sleeper.join();
  EXPECT_EQ(woken, 1);
}

}  // namespace
}  // namespace headrace::ring::testing
