#include "server/io/cache_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "clientlib/base/new_file.h"
#include "clientlib/base/trusted_path.h"
#include "server/log/log.h"

namespace headrace::server::io {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMostFile = std::uint64_t{2} << 30;  // no sample is larger
constexpr std::chrono::minutes kCountPatience{10};           // counting millions of files takes minutes

std::uint64_t pages(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

/// While it exists, no other server and no other thread of this one can change the count.
class CountLock {
 public:
  CountLock(std::mutex& mutex, int fd) : lock_(mutex), fd_(fd) {
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~CountLock() { ::flock(fd_, LOCK_UN); }
  CountLock(const CountLock&) = delete;
  CountLock& operator=(const CountLock&) = delete;

  /// An unreadable count is as large as possible, so that nothing is added.
  [[nodiscard]] std::uint64_t get() const {
    std::uint64_t bytes = 0;
    return ::pread(fd_, &bytes, sizeof bytes, 0) == sizeof bytes ? bytes : ~std::uint64_t{0};
  }
  [[nodiscard]] bool set(std::uint64_t bytes) const {
    return ::pwrite(fd_, &bytes, sizeof bytes, 0) == sizeof bytes;
  }

 private:
  const std::scoped_lock<std::mutex> lock_;
  const int fd_;
};

}  // namespace

Result<std::unique_ptr<CacheFolder>> CacheFolder::open(const std::filesystem::path& path,
                                                       std::uint64_t most) {
  auto folder = std::unique_ptr<CacheFolder>(new CacheFolder(path, most));
  if (auto done = folder->prepare(); !done) return fail(done.error());
  return folder;
}

Result<void> CacheFolder::prepare() {
  const auto refuse = [](const Error& error) {
    const std::string remedy =
        error.code == ErrorCode::kPermissionDenied
            ? fmt::format(
                  "give it to user {} alone (chown {}, chmod go-w), or set io.disk_cache.path to a new "
                  "folder",
                  ::geteuid(), ::geteuid())
            : "give a folder on a local disk that this user may write to (io.disk_cache.path)";
    return fail(error.code, fmt::format("disk cache {}; {}", error.message, remedy));
  };
  const auto unusable = [&](const char* what, int error) {
    return refuse(
        {ErrorCode::kEnvironment, fmt::format("{}: {}: {}", path_.string(), what, std::strerror(error))});
  };
  std::error_code error;
  std::filesystem::create_directories((path_ / "").parent_path().parent_path(), error);
  if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) return unusable("cannot be made", errno);
  auto folder = open_trusted_directory(path_.string());
  if (!folder) return refuse(folder.error());
  folder_ = std::move(*folder);
  for (const auto& [name, file] : {std::pair{"users", &users_}, {"count", &count_}}) {
    auto opened = open_trusted_file(folder_.get(), name, O_RDWR | O_CREAT);
    if (!opened)
      return refuse({opened.error().code, fmt::format("{}/{}", path_.string(), opened.error().message)});
    *file = std::move(*opened);
  }
  if (::flock(users_.get(), LOCK_EX | LOCK_NB) == 0) {
    const CountLock count(mutex_, count_.get());
    if (!count.set(count_files())) return unusable("cannot be written to", errno);
  }
  const auto begun = std::chrono::steady_clock::now();
  for (bool said = false; ::flock(users_.get(), LOCK_SH | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return unusable("cannot be locked", errno);
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited > kCountPatience)
      return unusable("another server has locked it and makes no progress", ETIMEDOUT);
    if (!said && waited > std::chrono::seconds(1)) {
      log::info("disk cache {}: waiting for another server, which counts what is in it", path_.string());
      said = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

std::uint64_t CacheFolder::count_files() const {
  std::uint64_t bytes = 0;
  std::error_code error;
  const auto skip = std::filesystem::directory_options::skip_permission_denied;
  for (std::filesystem::recursive_directory_iterator at(path_, skip, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (!at->is_regular_file(ignored) || at->is_symlink(ignored)) continue;
    if (at->path().native().ends_with(NewFile::kSuffix)) {
      std::filesystem::remove(at->path(), ignored);
    } else if (const auto size = at->file_size(ignored); !ignored) {
      bytes += pages(size);
    }
  }
  return bytes;
}

bool CacheFolder::reserve(std::uint64_t bytes) {
  const CountLock count(mutex_, count_.get());
  const std::uint64_t used = count.get();
  return used <= most_ && bytes <= most_ - used && count.set(used + bytes);
}

void CacheFolder::unreserve(std::uint64_t bytes) {
  const CountLock count(mutex_, count_.get());
  const std::uint64_t used = count.get();
  if (bytes <= used) (void)count.set(used - bytes);
}

std::uint64_t CacheFolder::used() const {
  std::uint64_t bytes = 0;
  return ::pread(count_.get(), &bytes, sizeof bytes, 0) == sizeof bytes ? bytes : 0;
}

CacheFolder::Found CacheFolder::read(const char* file, std::vector<std::uint8_t>& out) const {
  const ring::UniqueFd fd(
      ::openat(folder_.get(), file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK));
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) return Found::kNone;
  if (!fd && errno != ELOOP && errno != ENXIO) return Found::kRefused;
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      (status.st_uid != user_ && status.st_uid != 0))
    return Found::kUnreadable;
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  // A sparse file's size is larger than what it holds on disk.
  if (bytes > kMostFile || bytes > most_) return Found::kUnreadable;
  out.resize(bytes);
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(fd.get(), out.data() + done, bytes - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Found::kUnreadable;
    done += static_cast<std::uint64_t>(got);
  }
  return Found::kRead;
}

bool CacheFolder::add(const char* file, std::span<const std::uint8_t> bytes) {
  if (closed()) return false;
  if (reserve(pages(bytes.size()))) return put(file, bytes);
  if (!full_.exchange(true))
    log::info("disk cache {}: full: its samples stay, no more are added", path_.string());
  return false;
}

bool CacheFolder::replace(const char* file, std::span<const std::uint8_t> bytes) {
  struct stat status {};
  if (::fstatat(folder_.get(), file, &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  // Remove the old file first: there may be no room for both.
  if (::unlinkat(folder_.get(), file, 0) != 0) return false;
  // A truncated file may have been counted at its present size.
  const std::uint64_t had = pages(static_cast<std::uint64_t>(status.st_size)), wanted = pages(bytes.size());
  if (had < wanted && !reserve(wanted - had)) {
    unreserve(had);
    return false;
  }
  return put(file, bytes);
}

bool CacheFolder::put(const char* file, std::span<const std::uint8_t> bytes) {
  auto made = NewFile::create(folder_.get(), file);
  if (!made && made.error() == ENOENT) {
    const std::string_view name = file;  // like create_directories(), but that would apply the umask
    for (auto slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1))
      ::mkdirat(folder_.get(), std::string(name.substr(0, slash)).c_str(), 0700);
    made = NewFile::create(folder_.get(), file);
  }
  int error = made ? made->write(bytes.data(), bytes.size()) : made.error();
  // Unlike a rename, this never overwrites a file that another server added meanwhile.
  if (error == 0) error = made->add();
  if (error == 0) return true;
  unreserve(pages(bytes.size()));
  if (error != EEXIST && refused_.fetch_add(1, std::memory_order_relaxed) == 0)
    log::warn("disk cache {}: {}: {}; nothing is added any more", path_.string(), file, std::strerror(error));
  return false;
}

}  // namespace headrace::server::io
