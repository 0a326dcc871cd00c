#include "clientlib/base/default_directory.h"

#include <sys/stat.h>
#include <unistd.h>

namespace headrace {
namespace {

/// Whether it is a directory of this user that others cannot write to, as the XDG specification asks. A
/// missing directory is also accepted: the server creates it.
bool is_own(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return true;
  return S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

std::string default_directory(std::string_view runtime_dir) {
  if (const std::string path(runtime_dir); path.starts_with('/') && is_own(path)) return path + "/headrace";
  return "/tmp/headrace-" + std::to_string(::geteuid());
}

}  // namespace headrace
