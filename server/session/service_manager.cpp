#include "server/session/service_manager.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

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
        "no "
        "messages: start the server as a service, or unset the variable",
        path);
    return;
  }
  address_.sun_family = AF_UNIX;
  path.copy(address_.sun_path, path.size());
  if (path.front() == '@') address_.sun_path[0] = '\0';
  address_size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  socket_ = ring::UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  constexpr timeval kPatience{.tv_sec = 1, .tv_usec = 0};  // the manager's queue may be full
  if (socket_) ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  const std::uint64_t pid = number_in("WATCHDOG_PID");
  if (pid == 0 || pid == static_cast<std::uint64_t>(::getpid()))
    watchdog_ns_ = number_in("WATCHDOG_USEC") * 1000;
}

void ServiceManager::ready(const std::string& status) {
  send("READY=1\nSTATUS=" + status);
}

void ServiceManager::stopping() {
  send("STOPPING=1\nSTATUS=draining");
}

void ServiceManager::alive(std::uint64_t now_ns) {
  if (watchdog_ns_ == 0 || now_ns < next_ns_) return;
  next_ns_ = now_ns + watchdog_ns_ / 4;
  send("WATCHDOG=1");
}

void ServiceManager::send(const std::string& state) {
  if (!socket_) return;
  const auto* address = reinterpret_cast<const sockaddr*>(&address_);
  if (::sendto(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL, address, address_size_) >= 0) return;
  const int why = errno;
  const char* named = std::getenv("NOTIFY_SOCKET");
  log::warn("NOTIFY_SOCKET={}: cannot send {} to the service manager: {}", named ? named : "",
            state.substr(0, state.find('\n')), std::strerror(why));
}

}  // namespace headrace::server::session
