// glibc's checked recv(2) is an inline function, which could not be defined here.
#undef _FORTIFY_SOURCE

#include "server/session/admission.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "clientlib/ring/futex.h"
#include "server/session/descriptors.h"
#include "server/session/handshake.h"

namespace headrace::server::session {
namespace {

constexpr std::uint64_t kSayAgainNs = 5'000'000'000;
/// While there is none, poll(2) calls listeners ready all the time.
constexpr std::chrono::milliseconds kNoDescriptorPause{10};
/// What a connection sends besides requests: greeting and handshake.
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

/// By descriptor: 0, or one more than the bytes that a control connection sent and nobody took yet. Pages of
/// descriptors that are never used take no memory.
std::array<std::atomic<std::uint32_t>, kMostDescriptors> ahead;
std::atomic<std::int64_t> ahead_in_all{0};
std::atomic<std::uint64_t> refused_users{0}, refused_floods{0}, refused_descriptors{0}, refused_names{0};

std::array<std::atomic<bool>, kMostDescriptors> unfinished;  // by descriptor: its handshake

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
  /// False: the peer names itself.
  bool go_on(int fd, std::string_view more) {
    if (!unfinished[static_cast<std::size_t>(fd)].load(std::memory_order_relaxed)) return true;
    const std::scoped_lock lock(mutex_);
    std::string& bytes = bytes_[fd];
    bytes += more.substr(0, kLongestHandshake - bytes.size());
    const Handshake found = look_at_handshake(bytes);
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

/// True at most once in kSayAgainNs for each `said`: a peer does not fill the log.
bool may_say(std::atomic<std::uint64_t>& said) {
  const std::uint64_t now = ring::monotonic_ns();
  std::uint64_t last = said.load(std::memory_order_relaxed);
  if (last != 0 && now - last < kSayAgainNs) return false;
  return said.compare_exchange_strong(last, now, std::memory_order_relaxed);
}

int option(int socket, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

/// Only libzmq's are: the server's own Unix sockets keep packets apart (SOCK_SEQPACKET).
bool is_control(int socket) {
  return option(socket, SO_DOMAIN) == AF_UNIX && option(socket, SO_TYPE) == SOCK_STREAM;
}

void set_ahead(int fd, std::uint32_t value) {
  const std::uint32_t old = ahead[static_cast<std::size_t>(fd)].exchange(value, std::memory_order_relaxed);
  if (old > 1) ahead_in_all.fetch_sub(old - 1, std::memory_order_relaxed);
}

/// No bytes of this descriptor are counted, and no handshake is awaited any more.
void forget(int fd) {
  set_ahead(fd, 0);
  handshakes.forget(fd);
}

/// An errno, 0: it may stay.
int refusal(int fd) {
  if (in_reserve(fd)) {
    refused_descriptors.fetch_add(1, std::memory_order_relaxed);
    static std::atomic<std::uint64_t> said{0};
    if (may_say(said))
      spdlog::warn("no descriptor left for a new connection, RLIMIT_NOFILE is {}: raise it (ulimit -n)",
                   descriptor_limit());
    return ECONNABORTED;
  }
  if (option(fd, SO_DOMAIN) != AF_UNIX) return 0;
  const auto peer = admitted_peer(fd);
  if (!peer) {
    refused_users.fetch_add(1, std::memory_order_relaxed);
    static std::atomic<std::uint64_t> said{0};
    if (may_say(said))
      spdlog::warn("connection refused: {}; to admit that user, list it in server.allow.uids",
                   peer.error().message);
    return ECONNABORTED;
  }
  if (fd >= descriptor_limit() / 2 && !is_trusted_user(peer->uid)) {
    refused_descriptors.fetch_add(1, std::memory_order_relaxed);
    static std::atomic<std::uint64_t> said{0};
    if (may_say(said))
      spdlog::warn(
          "connection of user {} (pid {}) refused: half of the {} descriptors are in use, and the other half "
          "is for the server's own user; raise RLIMIT_NOFILE (ulimit -n)",
          peer->uid, peer->pid, descriptor_limit());
    return ECONNABORTED;
  }
  if (!is_control(fd)) return 0;
  set_ahead(fd, 1);
  handshakes.begin(fd);
  return 0;
}

int accept_admitted(int listener, sockaddr* address, socklen_t* size, int flags) {
  const auto fd = static_cast<int>(::syscall(SYS_accept4, listener, address, size, flags));
  if (fd < 0) {
    // libzmq ends the process if there is no descriptor or no memory. The connection stays where it is.
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return fd;
    std::this_thread::sleep_for(kNoDescriptorPause);
    errno = ECONNABORTED;
    return fd;
  }
  const int error = refusal(fd);
  if (error == 0) return fd;
  ::close(fd);
  errno = error;
  return -1;
}

ssize_t receive_counted(int fd, void* buffer, std::size_t size, int flags) {
  const ssize_t got = ::recvfrom(fd, buffer, size, flags, nullptr, nullptr);
  if (fd < 0 || fd >= static_cast<int>(kMostDescriptors)) return got;
  auto& count = ahead[static_cast<std::size_t>(fd)];
  if (count.load(std::memory_order_relaxed) == 0) return got;
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    const int error = got == 0 ? 0 : errno;
    forget(fd);                                                        // libzmq closes it
    errno = error == ENOMEM || error == ENOBUFS ? ECONNRESET : error;  // libzmq aborts on these
  }
  if (got <= 0) return got;
  const auto bytes = static_cast<std::uint32_t>(got);
  const bool anonymous = handshakes.go_on(fd, {static_cast<const char*>(buffer), bytes});
  const std::uint32_t own = count.fetch_add(bytes, std::memory_order_relaxed) - 1 + bytes;
  const std::int64_t all = ahead_in_all.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const bool bounded = own <= kMostAhead && (all <= kMostAheadInAll || own <= kHandshake);
  if (anonymous && bounded) return got;
  forget(fd);
  if (!is_control(fd)) return got;  // the connection was closed, and its number given out again
  (anonymous ? refused_floods : refused_names).fetch_add(1, std::memory_order_relaxed);
  static std::atomic<std::uint64_t> said{0};
  if (may_say(said)) {
    const auto peer = admitted_peer(fd);
    spdlog::warn("control connection of {} closed: {}",
                 peer ? fmt::format("user {} (pid {})", peer->uid, peer->pid) : "an unknown user",
                 anonymous
                     ? fmt::format("it sent {} bytes ahead of its requests (limit: {}; all together: {})",
                                   own, kMostAhead, kMostAheadInAll)
                     : "it sets a ZeroMQ identity (routing id), or speaks a version before ZMTP 3");
  }
  ::shutdown(fd, SHUT_RDWR);
  errno = ECONNRESET;
  return -1;
}

}  // namespace

void set_admitted(AllowedUsers allowed) {
  admitted().set(std::move(allowed));
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

Refusals refusals() {
  return {.users = refused_users.load(std::memory_order_relaxed),
          .floods = refused_floods.load(std::memory_order_relaxed),
          .names = refused_names.load(std::memory_order_relaxed),
          .descriptors = refused_descriptors.load(std::memory_order_relaxed)};
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

[[gnu::used, gnu::visibility("default")]] ssize_t recv(int fd, void* buffer, std::size_t size, int flags) {
  return headrace::server::session::receive_counted(fd, buffer, size, flags);
}
}
