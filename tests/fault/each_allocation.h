// For tests in which one allocation after the other fails: the loop, and what each failure must leave.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "headrace/error.h"
#include "tests/fault/failing_allocation.h"

namespace headrace::testing {

/// Counts how the failures of one phase ended. A phase prints them at its end.
using Outcomes = std::map<std::string, int>;

/// Runs `attempt` with each n up to `all`, then with each stride-th, until it ends without having reached its
/// n-th allocation. `attempt` returns what became of the failure.
template <class Attempt>
void fail_each(const char* phase, std::uint64_t all, std::uint64_t stride, const Attempt& attempt) {
  const char* const wish = std::getenv("HEADRACE_STRESS");
  if (wish != nullptr && *wish != '\0' && *wish != '0') stride = 1;
  Outcomes outcomes;
  int failed = 0, runs = 0;
  bool reached = true;
  std::uint64_t n = 0;
  for (; reached && !::testing::Test::HasFailure(); n += n < all ? 1 : stride) {
    SCOPED_TRACE(phase + std::string(": allocation ") + std::to_string(n));
    std::string outcome;
    reached = false;
    try {
      attempt(n, [&](const FailingAllocation& allocation, std::string became) {
        reached = allocation.reached();
        failed += allocation.failed() ? 1 : 0;
        outcome = allocation.failed() ? std::move(became) : "could not fail";
      });
    } catch (const std::bad_alloc&) {
      ADD_FAILURE() << "bad_alloc came through";
    }
    ++runs;
    if (reached) ++outcomes[outcome];
    if (::testing::Test::HasFailure())
      ADD_FAILURE() << "the allocation that failed:" << FailingAllocation::stack();
  }
  std::printf("%s: %d of the first %ju allocations failed, in %d runs\n", phase, failed,
              static_cast<std::uintmax_t>(n), runs);
  for (const auto& [what, count] : outcomes) std::printf("  %5d  %s\n", count, what.c_str());
  EXPECT_GT(failed, 10);
}

/// The open descriptors, by what they refer to. TCP sockets are left out, because civetweb may keep one that
/// it accepts while it stops.
inline std::map<std::string, int> descriptors() {
  std::map<std::string, int> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    int domain = 0;
    socklen_t size = sizeof domain;
    const int fd = std::stoi(entry.path().filename());
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX) continue;
    std::error_code closed;  // the iterator's own
    std::string what = std::filesystem::read_symlink(entry, closed).string();
    what.erase(std::min(what.size(), what.find(":[")));  // an inode
    ++open[what];
  }
  return open;
}

/// No more are open than before. The server closes its end of a session a moment after the client.
inline void expect_no_more(const std::map<std::string, int>& before) {
  std::string more;
  for (int look = 0; look == 0 || (look < 500 && !more.empty()); ++look) {
    if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    more.clear();
    for (const auto& [what, count] : descriptors()) {
      const auto found = before.find(what);
      if (const int had = found == before.end() ? 0 : found->second; count > had)
        more += fmt::format(" {} of {}, {} before;", count, what, had);
    }
  }
  EXPECT_EQ(more, "");
}

/// An error must have a code other than INTERNAL, and a message.
inline std::string named(const Error& error) {
  EXPECT_NE(error.code, ErrorCode::kInternal) << error.to_string();
  EXPECT_GT(error.message.size(), 8U) << error.to_string();
  return std::string(name_of(error.code));
}

}  // namespace headrace::testing
