#include "server/source/files/folder_entries.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

namespace headrace::server::source {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

int each_entry(int root_fd, const std::string& path,
               const std::function<bool(int folder_fd, const dirent& entry)>& each) {
  const int fd = ::openat(root_fd, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const std::unique_ptr<DIR, CloseDirectory> directory(::fdopendir(fd));
  if (!directory) {
    const int error = errno;
    ::close(fd);
    return error;
  }
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) return errno;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (!each(fd, *entry)) return 0;
  }
}

}  // namespace headrace::server::source
