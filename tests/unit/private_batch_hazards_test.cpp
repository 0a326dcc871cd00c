// Private batches at the moments that are hard to hit: this program's own getrusage(), pread() and operator
// new[] fork, and refuse, on demand.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "clientlib/ring/private_pages.h"
#include "headrace/client.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"

namespace {

std::atomic<int> g_fork_at{0};  ///< another thread forks before the n-th look at faults or pages from now
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
  if (g_fork_at > 0 && --g_fork_at == 0) fork_elsewhere();
  return ::syscall(SYS_pread64, fd, to, bytes, at);
}

extern "C" int getrusage(__rusage_who_t who, rusage* usage) noexcept {
  if (g_fork_at > 0 && --g_fork_at == 0) fork_elsewhere();
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
  }
  [[nodiscard]] Stream open() const {
    const OpenOptions options{.stream = "train", .batches = Batches::kPrivate};
    return Client::connect({.address = directory_}).value().open(options).value();
  }
  static BatchView next(Stream& stream) {
    for (;;)  // over the epoch's end
      if (auto batch = stream.next(20s).value()) return std::move(*batch);
  }
  static std::vector<std::byte> bytes_of(const BatchView& batch) {
    const FieldView field = batch.field("data").value();
    return {field.data, field.data + field.bytes()};
  }

  TempFolder folder_;
  const std::string directory_ = folder_.path().string();
  std::optional<RunningServer> server_;
};

TEST_F(PrivateBatchHazards, AForkInAnotherThreadWhileABatchIsMadeIsAForkBeforeOrAfterIt) {
  for (int look = 1; look <= 2; ++look) {
    std::optional<Stream> stream = open();
    Stream other = open();
    g_fork_at = look;
    const BatchView batch = next(*stream);
    ASSERT_EQ(g_fork_at, 0);
    const auto before = bytes_of(batch);
    stream.reset();  // its slot is filled again, but for what the batch made its own
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

}  // namespace
}  // namespace headrace
