#include "server/metrics/slow_requests.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>

namespace headrace::server::metrics {
namespace {

using Clock = std::chrono::steady_clock;

/// Half of civetweb's threads. The other half stays free for clients that send their request at once.
constexpr std::size_t kMostWaiting = 16;
/// A quarter of the threads for replies that take longer than kPatience. The last quarter has endless
/// replies.
constexpr std::size_t kMostSlow = 8;
constexpr std::chrono::seconds kPatience{1};

struct Connection {
  int socket = -1;
  std::string peer;
  std::optional<Clock::time_point> asked;  // when the head of its request had arrived
};

struct All {
  std::mutex mutex;
  std::deque<Connection> connections;  // oldest first; guarded by mutex
};

All& all() {
  static auto& one = *new All;
  return one;
}

/// Ends the oldest of the connections that `matches`, so that `most` of them are left.
template <class F>
void end_oldest(std::deque<Connection>& connections, std::size_t most, F matches) {
  auto count = static_cast<std::size_t>(std::count_if(connections.begin(), connections.end(), matches));
  std::erase_if(connections, [&](const Connection& each) {
    if (count <= most || !matches(each)) return false;
    ::shutdown(each.socket, SHUT_RDWR);  // civetweb's thread closes the descriptor
    --count;
    return true;
  });
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
  known.connections.push_back({socket, name_of(address.data(), port.data()), std::nullopt});
  end_oldest(known.connections, kMostWaiting, [](const Connection& each) { return !each.asked; });
} catch (...) {  // out of memory: the connection is served, but never ended
}

void end_slow() {
  All& known = all();
  const std::scoped_lock lock(known.mutex);
  const auto long_ago = Clock::now() - kPatience;
  end_oldest(known.connections, kMostSlow,
             [&](const Connection& each) { return each.asked && *each.asked < long_ago; });
}

void note_request(const std::string& address, int port) {
  All& known = all();
  const std::string name = name_of(address, std::to_string(port));
  const std::scoped_lock lock(known.mutex);
  for (Connection& each : known.connections)
    if (each.peer == name) each.asked = Clock::now();
}

void forget_connection(const std::string& address, int port) {
  All& known = all();
  const std::string name = name_of(address, std::to_string(port));
  const std::scoped_lock lock(known.mutex);
  std::erase_if(known.connections, [&](const Connection& each) { return each.peer == name; });
}

}  // namespace headrace::server::metrics
