#include "server/session/descriptors.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "clientlib/ring/futex.h"

namespace headrace::server::session {
namespace {

constexpr rlim_t kMost = 1 << 20;
constexpr std::uint64_t kTellAgainNs = 5'000'000'000;

int limit() {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return static_cast<int>(kMost);
  return static_cast<int>(std::min(now.rlim_cur, kMost));
}

void tell() {
  static std::atomic<std::uint64_t> told_ns{0};
  const std::uint64_t now = ring::monotonic_ns();
  std::uint64_t last = told_ns.load(std::memory_order_relaxed);
  if (last != 0 && now - last < kTellAgainNs) return;
  if (told_ns.compare_exchange_strong(last, now, std::memory_order_relaxed))
    spdlog::warn("no descriptor left for a new connection, RLIMIT_NOFILE is {}: raise it (ulimit -n)",
                 limit());
}

int accept_outside_reserve(int listener, sockaddr* address, socklen_t* size, int flags) {
  const auto fd = static_cast<int>(::syscall(SYS_accept4, listener, address, size, flags));
  if (fd < 0 || !in_reserve(fd)) return fd;
  ::close(fd);
  tell();
  errno = ECONNABORTED;
  return -1;
}

}  // namespace

void raise_descriptor_limit() {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return;
  const rlim_t wanted = std::min(now.rlim_max, kMost);
  if (now.rlim_cur >= wanted) return;
  now.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &now) != 0) spdlog::debug("RLIMIT_NOFILE stays as it is");
}

int reserved_descriptors() {
  return std::clamp(limit() / 4, 16, 256);
}

bool in_reserve(int fd) {
  return fd >= limit() - reserved_descriptors();
}

}  // namespace headrace::server::session

extern "C" {

[[gnu::used, gnu::visibility("default")]] int accept4(int listener, sockaddr* __restrict address,
                                                      socklen_t* __restrict size, int flags) {
  return headrace::server::session::accept_outside_reserve(listener, address, size, flags);
}

[[gnu::used, gnu::visibility("default")]] int accept(int listener, sockaddr* __restrict address,
                                                     socklen_t* __restrict size) {
  return headrace::server::session::accept_outside_reserve(listener, address, size, 0);
}
}
