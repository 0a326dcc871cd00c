#include "clientlib/client/heartbeat.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "clientlib/ring/futex.h"

namespace headrace::client {
namespace {

constexpr int kHeartbeatMs = 400;

class HeartbeatThread {
 public:
  HeartbeatThread() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // this thread must not receive the program's signals
    std::thread([this] { run(); }).detach();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void add(const std::shared_ptr<Attachment>& attachment) {
    beat(*attachment);
    const std::lock_guard lock(mutex_);
    attachments_.push_back(attachment);
    ::eventfd_write(wake_.get(), 1);
  }

 private:
  static void beat(const Attachment& attachment) {
    attachment.reader->lease().heartbeat_ns.store(ring::monotonic_ns(), std::memory_order_release);
  }

  [[noreturn]] void run() {
    std::vector<pollfd> polls;
    std::vector<std::weak_ptr<Attachment>> polled;
    for (;;) {
      try {
        watch(polls, polled);
      } catch (const std::bad_alloc&) {  // the server tolerates beats that are missing
        ::poll(nullptr, 0, kHeartbeatMs);
      }
    }
  }

  /// Waits for an event or the next beat, then beats.
  void watch(std::vector<pollfd>& polls, std::vector<std::weak_ptr<Attachment>>& polled) {
    polls.assign(1, {wake_.get(), POLLIN, 0});
    polled.assign(1, {});
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(attachments_, [](const auto& weak) { return weak.expired(); });
      for (const auto& weak : attachments_) {
        const auto attachment = weak.lock();
        if (!attachment || attachment->lost.load(std::memory_order_relaxed)) continue;
        polls.push_back({attachment->socket.get(), POLLIN, 0});
        polled.push_back(weak);
      }
    }
    ::poll(polls.data(), polls.size(), polls.size() > 1 ? kHeartbeatMs : -1);
    if (polls[0].revents != 0) {
      eventfd_t count = 0;
      ::eventfd_read(wake_.get(), &count);
    }
    for (std::size_t i = 1; i < polls.size(); ++i) {
      const auto attachment = polled[i].lock();
      if (!attachment) continue;
      if (polls[i].revents != 0 && ended(polls[i].fd)) declare_lost(*attachment);
      beat(*attachment);
    }
  }

  static void declare_lost(Attachment& attachment) {
    attachment.lost.store(true, std::memory_order_release);
    attachment.reader->wake();
  }

  /// Whether the server closed the session. It sends nothing after the descriptors; anything else is dropped.
  static bool ended(int socket) {
    char packet[64];
    ssize_t got = 0;
    do got = ::recv(socket, packet, sizeof packet, MSG_DONTWAIT);
    while (got > 0 || (got < 0 && errno == EINTR));
    return got == 0 || errno != EAGAIN;
  }

  ring::UniqueFd wake_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Attachment>> attachments_;  // guarded by mutex_
};

// Never destroyed: the thread runs until the process ends. A forked child creates a new object, because it
// has no such thread, and its copy of the mutex may stay locked for ever.
std::atomic<HeartbeatThread*> g_thread{nullptr};
alignas(std::mutex) std::byte g_mutex_memory[sizeof(std::mutex)];
std::mutex* g_starting = new (g_mutex_memory) std::mutex;

/// Allocates nothing: an exception here would end the child.
void forget_parent() {
  g_thread.store(nullptr, std::memory_order_relaxed);
  g_starting = new (g_mutex_memory) std::mutex;
}

[[maybe_unused]] const int g_forgets_in_child = ::pthread_atfork(nullptr, nullptr, forget_parent);

HeartbeatThread& heartbeat_thread() {
  const std::lock_guard lock(*g_starting);
  if (g_thread.load(std::memory_order_relaxed) == nullptr)
    g_thread.store(new HeartbeatThread, std::memory_order_relaxed);
  return *g_thread.load(std::memory_order_relaxed);
}

}  // namespace

void keep_alive(const std::shared_ptr<Attachment>& attachment) {
  heartbeat_thread().add(attachment);
}

}  // namespace headrace::client
