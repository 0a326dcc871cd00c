#include "server/session/local_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace headrace::server::session {

Result<ring::UniqueFd> listen_on(const std::filesystem::path& path, int backlog) {
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kEnvironment, fmt::format("socket {}: {}", path.string(), why));
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    return refuse(fmt::format("the path has {} bytes, the system allows {}; use a shorter server.directory",
                              path.native().size(), sizeof address.sun_path - 1));
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  ring::UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener || ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(listener.get(), backlog) != 0)
    return refuse(std::strerror(errno));
  return listener;
}

}  // namespace headrace::server::session
