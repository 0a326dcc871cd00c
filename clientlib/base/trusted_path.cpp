#include "clientlib/base/trusted_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "clientlib/base/peer.h"

namespace headrace {
namespace {

constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

/// Why a file or folder is not trusted; empty if it is.
std::string distrust(const struct stat& status, const std::vector<std::uint32_t>& owners) {
  if (!is_trusted_user(status.st_uid, owners)) {
    const std::string own = std::to_string(::geteuid());
    return "belongs to user " + std::to_string(status.st_uid) + " (mode " + octal(status.st_mode) +
           "), expected user " + own + (own == "0" ? "" : " or root");
  }
  if ((status.st_mode & kWritableByOthers) != 0)
    return "has mode " + octal(status.st_mode) + " (owner: user " + std::to_string(status.st_uid) +
           "): group or others can write to it";
  return {};
}

tl::unexpected<Error> no_access(const std::string& path, int error) {
  return fail(ErrorCode::kEnvironment, path + ": " + std::strerror(error));
}

tl::unexpected<Error> distrusted(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kPermissionDenied, path + " " + why);
}

}  // namespace

Result<UniqueFd> open_trusted_directory(const std::string& path, const std::vector<std::uint32_t>& owners) {
  const std::string name = path.substr(0, std::max<std::size_t>(path.find_last_not_of('/') + 1, 1));
  UniqueFd fd(::open(name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));  // O_PATH: mode 0711 is enough
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return no_access(path, errno);
  if (S_ISLNK(status.st_mode)) return distrusted(path, "is a symbolic link");
  if (!S_ISDIR(status.st_mode)) return no_access(path, ENOTDIR);
  if (const std::string why = distrust(status, owners); !why.empty()) return distrusted(path, why);
  return fd;
}

Result<UniqueFd> open_trusted_file(int directory, const std::string& name, int flags, mode_t mode) {
  // O_NONBLOCK: opening a FIFO would wait for its other end.
  constexpr int kAlways = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  UniqueFd fd(::openat(directory, name.c_str(), flags | kAlways, mode));
  if (!fd && errno == ELOOP) return distrusted(name, "is a symbolic link");
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return no_access(name, errno);
  if (!S_ISREG(status.st_mode)) return distrusted(name, "is not a regular file");
  if (const std::string why = distrust(status, {}); !why.empty()) return distrusted(name, why);
  if ((flags & O_ACCMODE) != O_RDONLY && status.st_nlink != 1)
    return distrusted(name, "has " + std::to_string(status.st_nlink) + " hard links, expected 1");
  return fd;
}

}  // namespace headrace
