#include "clientlib/client/fork_guard.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace headrace::client {
namespace {

std::atomic<std::uint64_t> g_generation{0};

void count_fork() {
  g_generation.fetch_add(1, std::memory_order_relaxed);
}

[[maybe_unused]] const int g_counts_forks = ::pthread_atfork(nullptr, nullptr, count_fork);

}  // namespace

std::uint64_t fork_generation() {
  return g_generation.load(std::memory_order_relaxed);
}

Result<void> ForkGuard::check(const char* what) const {
  if (!forked()) return {};
  return fail(
      ErrorCode::kForked,
      fmt::format(
          "this {0} belongs to the process from which pid {1} was forked, and a {0} does not survive a fork: "
          "make another {0} in the child, or start the child with spawn",
          what, ::getpid()));
}

}  // namespace headrace::client
