// The server's directory: where its sockets live. One server per directory, held by a lock on
// <directory>/lock that the kernel drops with the process; what a killed server left there is cleared by the
// next one.
#pragma once

#include <filesystem>
#include <string>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::session {

class Directory {
 public:
  /// Creates it (mode 0700) if need be, locks it, removes stale sockets. kDirectoryInUse says which pid holds
  /// it; kEnvironment if it cannot be made or a socket path in it would be too long (sun_path: 108 bytes).
  static Result<Directory> claim(const std::filesystem::path& path);
  Directory(Directory&&) noexcept = default;
  Directory& operator=(Directory&&) = delete;
  ~Directory();  ///< removes the sockets

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path socket(const char* name) const { return path_ / name; }

 private:
  Directory(std::filesystem::path path, ring::UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  void remove_sockets() const;

  std::filesystem::path path_;
  ring::UniqueFd lock_;
};

}  // namespace headrace::server::session
