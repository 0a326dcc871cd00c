#include "server/session/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp is POSIX's
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "clientlib/base/trusted_path.h"
#include "clientlib/wire/protocol.h"

namespace headrace::server::session {
namespace {

constexpr const char* kLock = "lock";

tl::unexpected<Error> no_directory(const std::filesystem::path& path, const std::string& why) {
  return fail(
      ErrorCode::kEnvironment,
      fmt::format("server directory {}: {}; set server.directory to a folder that this user can write",
                  path.string(), why));
}

/// `error` names the path and what is wrong with it.
tl::unexpected<Error> refuse(const Error& error) {
  return fail(error.code, fmt::format("server directory {}; it must be a folder, not a link, that user {} "
                                      "alone can write to (chown {}, chmod go-w); "
                                      "or set server.directory to a new folder",
                                      error.message, ::geteuid(), ::geteuid()));
}

/// Adds mode 0011 so that allowed users can reach the sockets; socket modes and admission.h decide which
/// users may connect.
Result<void> allow_traversal(int folder, const std::filesystem::path& path) {
  const ring::UniqueFd fd(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  constexpr mode_t kReach = S_IXGRP | S_IXOTH;
  if (fd && ::fstat(fd.get(), &status) == 0 &&
      ((status.st_mode & kReach) == kReach || ::fchmod(fd.get(), (status.st_mode & 07777) | kReach) == 0))
    return {};
  return fail(ErrorCode::kEnvironment, fmt::format("server directory {}: cannot set mode 0711, which "
                                                   "server.allow needs: {}; make the server's user its "
                                                   "owner (chown)",
                                                   path.string(), std::strerror(errno)));
}

std::string holder(int lock) {
  char text[32] = {};
  const ssize_t length = ::pread(lock, text, sizeof text - 1, 0);
  return length > 0 ? std::string(text, static_cast<std::size_t>(length)) : "unknown";
}

/// A killed server holds the lock until the kernel has freed its memory, above all the rings' pages.
bool lock_exclusively(int lock) {
  constexpr std::chrono::milliseconds kPatience{3000}, kPause{20};
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

/// Absolute, without a final separator: otherwise the parent of "run/" would be "run", which
/// create_directories() would make with the umask's mode.
Result<std::filesystem::path> with_room_for_sockets(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  const std::size_t longest = (absolute / wire::kControlSocket).native().size();
  if (longest < sizeof(sockaddr_un::sun_path)) return absolute;
  return fail(
      ErrorCode::kEnvironment,
      fmt::format("server directory {}: a socket path in it would be {} bytes long, the system allows "
                  "{}; use a shorter one",
                  absolute.string(), longest, sizeof(sockaddr_un::sun_path) - 1));
}

/// Whether claim() could make the directory: makes another one beside the first that is missing. The
/// directory itself may be a starting server's by now.
Result<void> could_make(const std::filesystem::path& absolute) {
  struct stat status {};
  std::filesystem::path above = absolute.parent_path();
  while (::lstat(above.c_str(), &status) != 0 && above.has_relative_path()) above = above.parent_path();
  std::string trial = (above / ".headrace-check-XXXXXX").string();
  if (::mkdtemp(trial.data()) == nullptr)
    return no_directory(absolute, fmt::format("{}: {}", above.string(), std::strerror(errno)));
  ::rmdir(trial.c_str());
  return {};
}

tl::unexpected<Error> refuse_lock(const std::filesystem::path& absolute, const Error& error) {
  return fail(error.code,
              fmt::format("server directory {}: {}; remove that file, or set server.directory to a folder "
                          "that this user can write",
                          absolute.string(), error.message));
}

}  // namespace

Result<void> Directory::check(const std::filesystem::path& path) {
  const auto absolute = with_room_for_sockets(path);
  if (!absolute) return fail(absolute.error());
  struct stat status {};
  if (::lstat(absolute->c_str(), &status) != 0) return could_make(*absolute);
  const auto folder = open_trusted_directory(absolute->string());
  if (!folder) return refuse(folder.error());
  // For the lock and the sockets. EROFS: a read-only file system, also for root.
  if (::faccessat(folder->get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return no_directory(*absolute, std::strerror(errno));
  if (::fstatat(folder->get(), kLock, &status, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (const auto lock = open_trusted_file(folder->get(), kLock, O_RDWR); !lock)
    return refuse_lock(*absolute, lock.error());
  return {};
}

bool Directory::is_in_use(const std::filesystem::path& path) {
  const ring::UniqueFd lock(::open((path / kLock).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

Result<Directory> Directory::claim(const std::filesystem::path& path, Reach reach) {
  const auto found = with_room_for_sockets(path);
  if (!found) return fail(found.error());
  const std::filesystem::path& absolute = *found;
  std::error_code error;
  std::filesystem::create_directories(absolute.parent_path(), error);
  if (::mkdir(absolute.c_str(), 0700) != 0 && errno != EEXIST)
    return no_directory(absolute, std::strerror(errno));
  auto folder = open_trusted_directory(absolute.string());
  if (!folder) return refuse(folder.error());
  if (reach == Reach::kEverybody)
    if (auto wide = allow_traversal(folder->get(), absolute); !wide) return fail(wide.error());
  auto lock = open_trusted_file(folder->get(), kLock, O_RDWR | O_CREAT);
  if (!lock) return refuse_lock(absolute, lock.error());
  if (!lock_exclusively(lock->get()))
    return fail(ErrorCode::kDirectoryInUse,
                fmt::format("{} is held by another server (pid {}): stop it, or give this one a "
                            "server.directory and a server.metrics.port of its own",
                            absolute.string(), holder(lock->get())));
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock->get(), 0) != 0 || ::pwrite(lock->get(), pid.data(), pid.size(), 0) < 0)
    return no_directory(absolute, std::strerror(errno));
  Directory directory(absolute, std::move(*folder), std::move(*lock), reach);
  directory.remove_sockets();
  return directory;
}

Directory::~Directory() {
  if (lock_) remove_sockets();
}

Result<void> Directory::set_socket_mode(const char* name) {
  const mode_t mode = reach_ == Reach::kEverybody ? 0666 : 0600;
  struct stat file {};
  if (::fchmodat(folder_.get(), name, mode, 0) == 0 && ::fstatat(folder_.get(), name, &file, 0) == 0) {
    sockets_.push_back({name, {file.st_dev, file.st_ino}});
    return {};
  }
  return fail(ErrorCode::kEnvironment,
              fmt::format("socket {}: its mode cannot be set to {:04o}: {}; set server.directory to a folder "
                          "on a local file system",
                          socket(name).string(), mode, std::strerror(errno)));
}

std::string Directory::loss() const {
  const auto why = [](int folder, const std::filesystem::path& path, const FileId& own) -> std::string {
    struct stat found {};
    if (::fstatat(folder, path.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0)
      return own == FileId{found.st_dev, found.st_ino} ? "" : " was replaced";
    return errno == ENOENT || errno == ENOTDIR ? " was deleted" : fmt::format(": {}", std::strerror(errno));
  };
  struct stat own {};
  if (::fstat(folder_.get(), &own) != 0) return {};
  if (const auto lost = why(AT_FDCWD, path_, {own.st_dev, own.st_ino}); !lost.empty())
    return path_.string() + lost;
  for (const auto& [name, id] : sockets_)
    if (const auto lost = why(folder_.get(), name, id); !lost.empty())
      return socket(name.c_str()).string() + lost;
  return {};
}

void Directory::remove_sockets() const {
  // By the descriptor: another server's directory may have the path by now.
  for (const char* name : {wire::kControlSocket, wire::kAttachSocket})
    (void)::unlinkat(folder_.get(), name, 0);
}

}  // namespace headrace::server::session
