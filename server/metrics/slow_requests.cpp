#include "server/metrics/slow_requests.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

namespace headrace::server::metrics {
namespace {

/// Half of civetweb's threads: the others are free for those who send a request at once.
constexpr std::size_t kMostWaiting = 16;

struct Waiting {
  int socket = -1;
  std::string peer;
};

struct All {
  std::mutex mutex;
  std::deque<Waiting> waiting;  // oldest first; guarded by mutex
};

All& all() {
  static auto& one = *new All;
  return one;
}

std::string name_of(const std::string& address, const std::string& port) {
  return address + " " + port;
}

}  // namespace

void note_accepted(int socket) noexcept try {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  std::array<char, NI_MAXHOST> address{};
  std::array<char, NI_MAXSERV> port{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, address.data(), address.size(), port.data(),
                    port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  All& known = all();
  const std::scoped_lock lock(known.mutex);
  known.waiting.push_back({socket, name_of(address.data(), port.data())});
  while (known.waiting.size() > kMostWaiting) {
    ::shutdown(known.waiting.front().socket, SHUT_RDWR);  // its thread closes it
    known.waiting.pop_front();
  }
} catch (...) {  // no memory: only its age is not known
}

void note_request(const std::string& address, int port) {
  All& known = all();
  const std::string name = name_of(address, std::to_string(port));
  const std::scoped_lock lock(known.mutex);
  std::erase_if(known.waiting, [&](const Waiting& each) { return each.peer == name; });
}

}  // namespace headrace::server::metrics
