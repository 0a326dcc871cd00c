// glibc's checked recv(2) is an inline function, so this file could not define recv(2) with it.
#undef _FORTIFY_SOURCE

#include "server/session/admission.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "clientlib/ring/futex.h"
#include "clientlib/wire/protocol.h"
#include "server/log/log.h"
#include "server/metrics/slow_requests.h"
#include "server/sandbox/sandbox.h"
#include "server/session/descriptors.h"
#include "server/session/handshake.h"
#include "server/session/refusals.h"

namespace headrace::server::session {
namespace {

/// Pause while no descriptor is free: poll(2) reports the listener ready all the time.
constexpr std::chrono::milliseconds kNoDescriptorPause{10};
/// The bytes that a connection sends besides requests: greeting and handshake.
constexpr std::uint32_t kHandshake = 4096;

class Admitted {
 public:
  void set(AllowedUsers allowed) {
    const std::scoped_lock lock(mutex_);
    allowed_ = std::move(allowed);
  }
  AllowedUsers get() {
    const std::scoped_lock lock(mutex_);
    return allowed_;
  }

 private:
  std::mutex mutex_;
  AllowedUsers allowed_;
};
Admitted& admitted() {
  static Admitted one;
  return one;
}

/// By descriptor: 0 if it is not a control connection, else 1 + its unprocessed bytes. The pages of unused
/// descriptors take no memory.
std::array<std::atomic<std::uint32_t>, kMostDescriptors> ahead;
/// Includes `closed_bytes`.
std::atomic<std::int64_t> ahead_in_all{0};
std::atomic<std::int64_t> closed_bytes{0};

Refusals wrong_user, flood, sets_identity, no_descriptor;

std::array<std::atomic<bool>, kMostDescriptors>
    unfinished;  // by descriptor: whether its handshake is incomplete

/// The first bytes of each control connection, until its handshake is complete.
class Handshakes {
 public:
  void begin(int fd) {
    const std::scoped_lock lock(mutex_);
    bytes_[fd].clear();
    unfinished[static_cast<std::size_t>(fd)].store(true, std::memory_order_relaxed);
  }
  void forget(int fd) {
    if (!unfinished[static_cast<std::size_t>(fd)].exchange(false, std::memory_order_relaxed)) return;
    const std::scoped_lock lock(mutex_);
    bytes_.erase(fd);
  }
  /// False: the peer sets an identity.
  bool advance(int fd, std::string_view more) {
    if (!unfinished[static_cast<std::size_t>(fd)].load(std::memory_order_relaxed)) return true;
    const std::scoped_lock lock(mutex_);
    std::string& bytes = bytes_[fd];
    bytes += more.substr(0, kLongestHandshake - bytes.size());
    const Handshake found = classify_handshake(bytes);
    if (found == Handshake::kUnfinished) return true;
    unfinished[static_cast<std::size_t>(fd)].store(false, std::memory_order_relaxed);
    bytes_.erase(fd);
    return found == Handshake::kAnonymous;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int, std::string> bytes_;  // guarded by mutex_
};
Handshakes handshakes;

int option(int socket, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

/// Whether libzmq's control socket accepted it. Its name tells: libraries in this process may have other Unix
/// sockets, such as compute-sanitizer's, which must work as without us.
bool is_control(int socket) {
  if (option(socket, SO_DOMAIN) != AF_UNIX || option(socket, SO_TYPE) != SOCK_STREAM) return false;
  sockaddr_un own{};
  socklen_t size = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0) return true;
  const std::string_view path(static_cast<const char*>(own.sun_path),
                              ::strnlen(own.sun_path, sizeof own.sun_path));
  return path.ends_with(std::string("/") + wire::kControlSocket);
}

void set_ahead(int fd, std::uint32_t value) {
  const std::uint32_t old = ahead[static_cast<std::size_t>(fd)].exchange(value, std::memory_order_relaxed);
  if (old > 1) closed_bytes.fetch_add(old - 1, std::memory_order_release);
}

/// Called before `fd` is closed, because another connection can get that number afterwards.
[[maybe_unused]] void forget(int fd) {
  if (fd < 0 || fd >= static_cast<int>(kMostDescriptors)) return;
  if (ahead[static_cast<std::size_t>(fd)].load(std::memory_order_relaxed) == 0) return;
  set_ahead(fd, 0);
  handshakes.forget(fd);
}

/// Whether to keep an accepted connection.
bool is_allowed(int fd) {
  if (in_reserve(fd)) {
    no_descriptor.refuse(
        "connection refused: the last {} of {} descriptors are reserved for data files and attached clients; "
        "raise RLIMIT_NOFILE (ulimit -n)",
        reserved_descriptors(), descriptor_limit());
    return false;
  }
  if (option(fd, SO_DOMAIN) != AF_UNIX) {
    metrics::note_accepted(fd);
    return true;
  }
  const auto peer = admitted_peer(fd);
  if (!peer) {
    wrong_user.refuse("connection refused: {}; to admit a user, list the uid in server.allow.uids",
                      peer.error().message);
    return false;
  }
  if (fd >= descriptor_limit() / 2 && !is_trusted_user(peer->uid)) {
    no_descriptor.refuse(
        "connection of user {} (pid {}) refused: half of the {} descriptors are in use, and the other half "
        "is for the server's own user; raise RLIMIT_NOFILE (ulimit -n)",
        peer->uid, peer->pid, descriptor_limit());
    return false;
  }
  if (is_control(fd)) {
    set_ahead(fd, 1);
    handshakes.begin(fd);
  }
  return true;
}

int accept_admitted(int listener, sockaddr* address, socklen_t* size, int flags) {
  // libzmq's thread blocks all signals.
  [[maybe_unused]] thread_local const bool ready = (sandbox::unblock_sigsys(), true);
  const auto fd = static_cast<int>(::syscall(SYS_accept4, listener, address, size, flags));
  if (fd < 0) {
    // libzmq ends the process if there is no descriptor or no memory. The connection stays in the queue.
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return fd;
    std::this_thread::sleep_for(kNoDescriptorPause);
    errno = ECONNABORTED;
    return fd;
  }
  if (is_allowed(fd)) return fd;
  ::close(fd);
  errno = ECONNABORTED;
  return -1;
}

/// How many more bytes a connection with `own` unprocessed bytes may send.
std::int64_t room(std::uint32_t own) {
  const std::int64_t left_of_all = kMostAheadInAll - ahead_in_all.load(std::memory_order_relaxed);
  const auto left = [&](std::int64_t most) { return std::max<std::int64_t>(most - own, 0); };
  return std::max(std::min(left(kMostAhead), left_of_all), left(kHandshake));
}

ssize_t end_connection(int fd) {
  ::shutdown(fd, SHUT_RDWR);  // libzmq closes it
  errno = ECONNRESET;
  return -1;
}

ssize_t receive_counted(int fd, void* buffer, std::size_t size, int flags) {
  const auto receive = [&] { return ::recvfrom(fd, buffer, size, flags, nullptr, nullptr); };
  if (fd < 0 || fd >= static_cast<int>(kMostDescriptors)) return receive();
  auto& count = ahead[static_cast<std::size_t>(fd)];
  const std::uint32_t counted = count.load(std::memory_order_relaxed);
  if (counted == 0) return receive();
  // Bytes beyond the limit are not read at all: malloc might keep their memory.
  int waiting = 0;
  ::ioctl(fd, FIONREAD, &waiting);
  if (std::min<std::int64_t>(waiting, static_cast<std::int64_t>(size)) > room(counted - 1)) {
    flood.refuse(
        "control connection of {} closed: it has {} unprocessed bytes (limit: {} for one connection, {} for "
        "all); wait for each reply before sending the next request",
        describe_peer(fd), counted - 1 + static_cast<std::uint32_t>(waiting), kMostAhead, kMostAheadInAll);
    return end_connection(fd);
  }
  const ssize_t got = receive();
  if (got < 0 && (errno == ENOMEM || errno == ENOBUFS)) errno = ECONNRESET;  // libzmq aborts on these
  if (got <= 0) return got;
  count.fetch_add(static_cast<std::uint32_t>(got), std::memory_order_relaxed);
  ahead_in_all.fetch_add(got, std::memory_order_relaxed);
  if (handshakes.advance(fd, {static_cast<const char*>(buffer), static_cast<std::size_t>(got)})) return got;
  sets_identity.refuse(
      "control connection of {} closed: expected a ZMTP 3 handshake without an identity (routing id); "
      "connect with a headrace client",
      describe_peer(fd));
  return end_connection(fd);
}

}  // namespace

void set_admitted(AllowedUsers allowed) {
  admitted().set(std::move(allowed));
}

std::string describe_peer(int socket) {
  const auto peer = admitted_peer(socket);
  return peer ? fmt::format("user {} (pid {})", peer->uid, peer->pid) : "an unknown user";
}

Result<Peer> admitted_peer(int socket) {
  return check_peer(socket, admitted().get());
}

void count_taken(int fd, std::size_t bytes) {
  if (fd < 0 || fd >= static_cast<int>(kMostDescriptors)) return;
  auto& count = ahead[static_cast<std::size_t>(fd)];
  std::uint32_t old = count.load(std::memory_order_relaxed), now = 0;
  do {
    if (old == 0) return;
    const std::uint32_t left = old - 1 - static_cast<std::uint32_t>(std::min<std::size_t>(old - 1, bytes));
    now = 1 + (left <= kHandshake ? 0 : left);
  } while (!count.compare_exchange_weak(old, now, std::memory_order_relaxed));
  ahead_in_all.fetch_sub(old - now, std::memory_order_relaxed);
}

std::int64_t closed_ahead() {
  return closed_bytes.load(std::memory_order_acquire);
}

void release_closed(std::int64_t bytes) {
  if (bytes == 0) return;
  closed_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  ahead_in_all.fetch_sub(bytes, std::memory_order_relaxed);
}

RefusalCounts refusals() {
  return {.users = wrong_user.count(),
          .floods = flood.count(),
          .names = sets_identity.count(),
          .descriptors = no_descriptor.count()};
}

}  // namespace headrace::server::session

extern "C" {

[[gnu::used, gnu::visibility("default")]] int accept4(int listener, sockaddr* __restrict address,
                                                      socklen_t* __restrict size, int flags) {
  return headrace::server::session::accept_admitted(listener, address, size, flags);
}

[[gnu::used, gnu::visibility("default")]] int accept(int listener, sockaddr* __restrict address,
                                                     socklen_t* __restrict size) {
  return headrace::server::session::accept_admitted(listener, address, size, 0);
}

#ifndef __SANITIZE_THREAD__  // the sanitizer's runtime closes descriptors while it reports, and must see each
                             // close
[[gnu::used, gnu::visibility("default")]] int close(int fd) {
  headrace::server::session::forget(fd);
  return static_cast<int>(::syscall(SYS_close, fd));
}
#endif

[[gnu::used, gnu::visibility("default")]] ssize_t recv(int fd, void* buffer, std::size_t size, int flags) {
  return headrace::server::session::receive_counted(fd, buffer, size, flags);
}
}
