#include "server/verbs/scratch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp is POSIX's
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace headrace::server::verbs {
namespace {

namespace fs = std::filesystem;

/// A folder of this user, locked; empty: it is not such a folder, or another process has locked it.
ring::UniqueFd locked(const fs::path& path) {
  ring::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (fd && ::fstat(fd.get(), &status) == 0 && status.st_uid == ::geteuid() &&
      ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0)
    return fd;
  return {};
}

void sweep(const fs::path& folder, const std::string& prefix) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().native().starts_with(prefix)) continue;
    std::error_code ignored;
    if (const auto mine = locked(entry->path())) fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

Result<ScratchFolder> ScratchFolder::make(const std::string& prefix) {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error)
    return fail(ErrorCode::kEnvironment,
                fmt::format("there is no folder for temporary files: {}; set TMPDIR", error.message()));
  sweep(folder, prefix);
  for (;;) {
    std::string path = (folder / (prefix + "XXXXXX")).string();
    if (::mkdtemp(path.data()) == nullptr)
      return fail(ErrorCode::kEnvironment,
                  fmt::format("{} cannot be made: {}; set TMPDIR to a folder that this user can write", path,
                              std::strerror(errno)));
    // Another process may have removed it in between.
    errno = EPERM;  // it belongs to another user: file systems may change that
    auto lock = locked(path);
    const int why = errno;
    if (lock && fs::exists(path, error)) return ScratchFolder(path, std::move(lock));
    if (!lock && why != EWOULDBLOCK && why != ENOENT) {
      fs::remove(path, error);
      return fail(ErrorCode::kEnvironment, fmt::format("{} cannot be locked: {}; set TMPDIR to a local disk",
                                                       path, std::strerror(why)));
    }
  }
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace headrace::server::verbs
