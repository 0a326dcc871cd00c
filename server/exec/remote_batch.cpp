#include "server/exec/remote_batch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <numeric>

namespace headrace::server::exec {

Result<std::shared_ptr<const ProcessMemory>> ProcessMemory::open(pid_t pid, int connection) {
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  UniqueFd socket(::fcntl(connection, F_DUPFD_CLOEXEC, 0));
  if (!process || !socket)
    return fail(ErrorCode::kEnvironment,
                fmt::format("process {}: no descriptor for it: {}", pid, std::strerror(errno)));
  return std::shared_ptr<const ProcessMemory>(new ProcessMemory(pid, std::move(process), std::move(socket)));
}

bool ProcessMemory::read(std::span<const iovec> to, std::span<const iovec> from) const {
  const std::size_t size =
      std::accumulate(to.begin(), to.end(), std::size_t{0},
                      [](std::size_t sum, const iovec& part) { return sum + part.iov_len; });
  const ssize_t copied = ::process_vm_readv(pid_, to.data(), to.size(), from.data(), from.size(), 0);
  if (copied < 0 || static_cast<std::size_t>(copied) != size) return false;
  // If both still exist, the memory was that process's, and was not freed before the copy.
  pollfd ended[] = {{process_.get(), POLLIN, 0}, {connection_.get(), POLLRDHUP, 0}};
  return ::poll(ended, 2, 0) == 0;
}

iovec RemoteRows::part(std::uint64_t address, std::uint64_t first, std::uint64_t count,
                       std::size_t row_size) {
  return {.iov_base = reinterpret_cast<void*>(address + first * row_size), .iov_len = count * row_size};
}

bool RemoteBatch::make_here() {
  State awaited = State::kAwaited;
  return state_.compare_exchange_strong(awaited, State::kMadeHere, std::memory_order_acq_rel);
}

bool RemoteBatch::take_back() {
  State awaited = State::kAwaited;
  if (!state_.compare_exchange_strong(awaited, State::kTakenBack, std::memory_order_acq_rel)) return false;
  release_(0);
  return true;
}

bool RemoteBatch::arrive(RemoteRows rows) {
  State state = state_.load(std::memory_order_acquire);
  if (state != State::kAwaited && state != State::kMadeHere) return false;
  rows_ = std::move(rows);  // not read before the state says so
  // Meanwhile workers may have begun to make the rows, or taken the order back.
  while (!state_.compare_exchange_weak(state, State::kArrived, std::memory_order_acq_rel))
    if (state == State::kTakenBack) return false;
  return true;
}

}  // namespace headrace::server::exec
