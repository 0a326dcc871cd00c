#include "server/session/service_manager.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "server/log/log.h"

namespace headrace::server::session {
namespace {

/// 0 if it is not set, or not a number.
std::uint64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  const std::string_view digits = text == nullptr ? "" : text;
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace

ServiceManager::ServiceManager() {
  const char* named = std::getenv("NOTIFY_SOCKET");
  const std::string_view path = named == nullptr ? "" : named;
  if (path.empty()) return;
  if ((path.front() != '/' && path.front() != '@') || path.size() >= sizeof address_.sun_path) {
    log::warn(
        "NOTIFY_SOCKET={}: expected an absolute path or an abstract name (@...), so the service manager gets "
        "no messages: start the server as a service, or unset the variable",
        path);
    return;
  }
  address_.sun_family = AF_UNIX;
  path.copy(address_.sun_path, path.size());
  if (path.front() == '@') address_.sun_path[0] = '\0';
  address_size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  socket_ = ring::UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_) {
    log::warn("NOTIFY_SOCKET={}: cannot open a socket, so the service manager gets no messages: {}", path,
              std::strerror(errno));
    return;
  }
  const std::uint64_t pid = number_in("WATCHDOG_PID");
  if (pid == 0 || pid == static_cast<std::uint64_t>(::getpid()))
    watchdog_ns_ = number_in("WATCHDOG_USEC") * 1000;
}

void ServiceManager::ready(const std::string& status) {
  tell("READY=1\nSTATUS=" + status);
}

void ServiceManager::stopping() {
  tell("STOPPING=1\nSTATUS=draining");
}

void ServiceManager::alive(std::uint64_t now_ns) {
  if (!deferred_.empty() && send(deferred_)) deferred_.clear();
  if (watchdog_ns_ == 0 || now_ns < next_ns_) return;
  if (send("WATCHDOG=1")) next_ns_ = now_ns + watchdog_ns_ / 4;
}

void ServiceManager::tell(std::string state) {
  deferred_.clear();
  if (!send(state)) deferred_ = std::move(state);
}

bool ServiceManager::send(const std::string& state) {
  if (!socket_) return true;
  const auto* address = reinterpret_cast<const sockaddr*>(&address_);
  if (::sendto(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT, address,
               address_size_) >= 0)
    return true;
  const int why = errno;
  if (why == EAGAIN || why == ENOBUFS) return false;
  const char* named = std::getenv("NOTIFY_SOCKET");
  log::warn("NOTIFY_SOCKET={}: cannot send {} to the service manager: {}", named ? named : "",
            state.substr(0, state.find('\n')), std::strerror(why));
  return true;
}

}  // namespace headrace::server::session
