#include "server/session/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "clientlib/wire/protocol.h"

namespace headrace::server::session {
namespace {

tl::unexpected<Error> no_directory(const std::filesystem::path& path, const std::string& why) {
  return fail(ErrorCode::kEnvironment,
              fmt::format("server directory {}: {}; set server.directory to a place that this user can write",
                          path.string(), why));
}

std::string holder(int lock) {
  char text[32] = {};
  const ssize_t length = ::pread(lock, text, sizeof text - 1, 0);
  return length > 0 ? std::string(text, static_cast<std::size_t>(length)) : "unknown";
}

/// A server that was killed holds the lock until its memory, the rings' pages above all, is given back.
bool take(int lock) {
  constexpr std::chrono::milliseconds kPatience{3000}, kPause{20};
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace

Result<Directory> Directory::claim(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  const std::size_t longest = (absolute / wire::kControlSocket).native().size();
  if (longest >= sizeof(sockaddr_un::sun_path))
    return fail(ErrorCode::kEnvironment,
                fmt::format("server directory {}: a socket path in it would be {} bytes long, the "
                            "system allows {}; use a shorter one",
                            absolute.string(), longest, sizeof(sockaddr_un::sun_path) - 1));
  if (!std::filesystem::exists(absolute, error)) {
    std::filesystem::create_directories(absolute.parent_path(), error);
    if (::mkdir(absolute.c_str(), 0700) != 0 && errno != EEXIST)
      return no_directory(absolute, std::strerror(errno));
  }
  ring::UniqueFd lock(::open((absolute / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return no_directory(absolute, std::strerror(errno));
  if (!take(lock.get()))
    return fail(ErrorCode::kDirectoryInUse,
                fmt::format("{} is held by another server (pid {}): stop it, or give this one a "
                            "server.directory and a server.metrics.port of its own",
                            absolute.string(), holder(lock.get())));
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), pid.data(), pid.size(), 0) < 0)
    return no_directory(absolute, std::strerror(errno));
  Directory directory(absolute, std::move(lock));
  directory.remove_sockets();
  return directory;
}

Directory::~Directory() {
  if (lock_) remove_sockets();
}

void Directory::remove_sockets() const {
  std::error_code ignored;
  std::filesystem::remove(socket(wire::kControlSocket), ignored);
  std::filesystem::remove(socket(wire::kAttachSocket), ignored);
}

}  // namespace headrace::server::session
