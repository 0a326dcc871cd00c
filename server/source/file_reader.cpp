#include "server/source/file_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "clientlib/ring/unique_fd.h"

namespace headrace::server::source {
namespace {

// Whether a later attempt may go better. Not so where the file itself is gone, barred or of another kind.
bool may_heal(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EACCES:
    case EPERM:
    case EISDIR:
    case ENXIO:
    case ENAMETOOLONG:
      return false;
    default:
      return true;
  }
}

Error changed(const std::string& file, std::string_view how) {
  return {ErrorCode::kDatasetInvalid, fmt::format("{}: {} since the dataset was opened; keep it unchanged "
                                                  "while it is served, then restart the server",
                                                  file, how)};
}

Error system_error(const std::string& file, std::string_view doing, int error) {
  if (error == ENOENT || error == ENOTDIR) return changed(file, "vanished");
  if (!may_heal(error))
    return {ErrorCode::kDatasetInvalid,
            fmt::format("{}: cannot be {}: {}", file, doing, std::strerror(error))};
  return {ErrorCode::kTransientIo, fmt::format("{}: cannot be {}: {}", file, doing, std::strerror(error))};
}

// One attempt. `healable` tells whether the error may go away.
Result<void> attempt(int root_fd, const char* path, std::uint64_t expected, const ReadPolicy& policy,
                     const std::string& root, std::vector<std::uint8_t>& out, bool& healable) {
  healable = false;
  const auto file = [&] { return fmt::format("{}/{}", root, path); };
  ring::UniqueFd fd;
  do {
    fd.reset(::openat(root_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  } while (!fd && errno == EINTR);
  if (!fd) {
    healable = may_heal(errno);
    return fail(system_error(file(), "opened", errno));
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    healable = may_heal(errno);
    return fail(system_error(file(), "examined", errno));
  }
  if (!S_ISREG(status.st_mode)) return fail(changed(file(), "is no regular file any more"));
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes != expected)
    return fail(changed(file(), fmt::format("has {} bytes, had {}; it was changed", bytes, expected)));
  if (bytes > policy.max_bytes)
    return fail(ErrorCode::kBadSample,
                fmt::format("{}: has {} bytes, more than the limit of {}", file(), bytes, policy.max_bytes));
  out.resize(bytes);
  std::uint64_t done = 0;
  while (done < bytes) {
    const auto at = static_cast<off_t>(done);
    const ssize_t got = policy.pread ? policy.pread(fd.get(), out.data() + done, bytes - done, at)
                                     : ::pread(fd.get(), out.data() + done, bytes - done, at);
    if (got == 0)
      return fail(changed(file(), fmt::format("ended at byte {} of {}; it was cut", done, bytes)));
    if (got < 0) {
      if (errno == EINTR) continue;
      healable = may_heal(errno);
      return fail(system_error(file(), fmt::format("read at byte {}", done), errno));
    }
    done += static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace

Result<void> read_file(int root_fd, const char* path, std::uint64_t expected_bytes, const ReadPolicy& policy,
                       const std::string& shown_root, std::vector<std::uint8_t>& out) {
  auto pause = policy.backoff;
  for (int i = 1;; ++i) {
    bool healable = false;
    auto result = attempt(root_fd, path, expected_bytes, policy, shown_root, out, healable);
    if (result || !healable) return result;
    if (i >= policy.attempts) {
      result.error().message += fmt::format(" (after {} attempts); look at the disk or mount it lies on", i);
      return result;
    }
    std::this_thread::sleep_for(pause);
    pause *= 4;
  }
}

}  // namespace headrace::server::source
