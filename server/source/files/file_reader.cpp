#include "server/source/files/file_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace headrace::server::source {
namespace {

// Whether a retry may succeed. Not if the file itself is gone, not permitted or of another type.
bool is_retryable(int error) {
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
  return {ErrorCode::kDatasetInvalid,
          fmt::format("{}: {} since the dataset was opened; files must stay as they are while "
                      "they are served: restore it if it is needed, then restart the server",
                      file, how)};
}

// What the user can do about a system error.
const char* remedy(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "give this user the right to read it";
    case ELOOP:
    case EISDIR:
    case ENXIO:
    case ENAMETOOLONG:
      return "replace it with a regular file, or remove it from the dataset";
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return "raise the limit (ulimit -n, memory)";
    default:
      return "check its disk or mount";
  }
}

Error system_error(const std::string& file, std::string_view doing, int error) {
  if (error == ENOENT || error == ENOTDIR) return changed(file, "vanished");
  const std::string what = fmt::format("{}: cannot be {}: {}", file, doing, std::strerror(error));
  if (!is_retryable(error)) return {ErrorCode::kDatasetInvalid, fmt::format("{}; {}", what, remedy(error))};
  return {ErrorCode::kTransientIo, what};
}

std::string shown(const FileRef& file) {
  return fmt::format("{}/{}", file.shown_root, file.path);
}

tl::unexpected<ReadFault> system_fault(const FileRef& file, std::string_view doing, int error) {
  return tl::make_unexpected(
      ReadFault{system_error(shown(file), doing, error), is_retryable(error), remedy(error)});
}

tl::unexpected<ReadFault> changed_fault(const FileRef& file, std::string_view how) {
  return tl::make_unexpected(ReadFault{changed(shown(file), how), false});
}

struct OpenFile {
  ring::UniqueFd fd;
  std::uint64_t bytes = 0;
};

Attempt<OpenFile> open_regular(const FileRef& file, std::optional<std::uint64_t> expected_bytes) {
  OpenFile open;
  do {
    open.fd.reset(::openat(file.root_fd, file.path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  } while (!open.fd && errno == EINTR);
  if (!open.fd) return system_fault(file, "opened", errno);
  struct stat status {};
  if (::fstat(open.fd.get(), &status) != 0) return system_fault(file, "examined", errno);
  if (!S_ISREG(status.st_mode)) return changed_fault(file, "is no longer a regular file");
  open.bytes = static_cast<std::uint64_t>(status.st_size);
  if (expected_bytes && open.bytes != *expected_bytes)
    return changed_fault(file,
                         fmt::format("has {} bytes, had {}; it was changed", open.bytes, *expected_bytes));
  return open;
}

}  // namespace

Attempt<ring::UniqueFd> open_unchanged(const FileRef& file, std::uint64_t expected_bytes) {
  return open_regular(file, expected_bytes).map([](OpenFile&& open) { return std::move(open.fd); });
}

Attempt<void> read_range(int fd, std::uint64_t offset, std::span<std::uint8_t> out, const ReadPolicy& policy,
                         const FileRef& file) {
  std::uint64_t done = 0;
  while (done < out.size()) {
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t got = policy.pread ? policy.pread(fd, out.data() + done, out.size() - done, at)
                                     : ::pread(fd, out.data() + done, out.size() - done, at);
    if (got == 0)
      return changed_fault(
          file, fmt::format("ended at byte {} of {}; it was truncated", offset + done, offset + out.size()));
    if (got < 0) {
      if (errno == EINTR) continue;
      return system_fault(file, fmt::format("read at byte {}", offset + done), errno);
    }
    done += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<void> with_retries(const ReadPolicy& policy, const std::function<Attempt<void>()>& attempt) {
  auto pause = policy.backoff;
  for (int i = 1;; ++i) {
    auto result = attempt();
    if (result) return {};
    Error& error = result.error().error;
    if (!result.error().retryable) return fail(std::move(error));
    if (i >= policy.attempts) {
      error.message += fmt::format(" (after {} attempts); {}", i, result.error().remedy);
      return fail(std::move(error));
    }
    std::this_thread::sleep_for(pause);
    pause *= 4;
  }
}

Result<void> read_file(const FileRef& file, std::optional<std::uint64_t> expected_bytes,
                       const ReadPolicy& policy, std::vector<std::uint8_t>& out) {
  const auto attempt = [&]() -> Attempt<void> {
    const auto open = open_regular(file, expected_bytes);
    if (!open) return tl::make_unexpected(open.error());
    if (open->bytes > policy.max_bytes)
      return tl::make_unexpected(
          ReadFault{{ErrorCode::kBadSample, fmt::format("{}: has {} bytes, more than the limit of {}",
                                                        shown(file), open->bytes, policy.max_bytes)},
                    false});
    out.resize(open->bytes);
    return read_range(open->fd.get(), 0, out, policy, file);
  };
  return with_retries(policy, std::cref(attempt));
}

}  // namespace headrace::server::source
