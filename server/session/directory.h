// The server's directory, which contains its sockets. One server per directory, held by a lock on
// <directory>/lock that the kernel releases with the process; the next server removes what a killed one left.
// Only the server's user and root may write to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::session {

/// Which users the modes of the directory and its sockets admit. admission.h decides which of these are
/// served.
enum class Reach : std::uint8_t {
  kOwner,     ///< the server's user and root: directory 0700, sockets 0600
  kEverybody  ///< directory 0711 at least, sockets 0666: modes cannot name the users of `server.allow`
};

class Directory {
 public:
  /// Creates the directory if necessary, locks it and removes stale sockets. kDirectoryInUse names the pid
  /// that holds it; kPermissionDenied: it is a symbolic link, belongs to another user, or is writable by
  /// group or others; kEnvironment: it cannot be created, or a socket path in it would be too long (sun_path:
  /// 108 bytes).
  static Result<Directory> claim(const std::filesystem::path& path, Reach reach);
  /// Reports those errors of claim() that can be found without creating or locking the directory.
  static Result<void> check(const std::filesystem::path& path);
  /// Whether a server holds it now.
  static bool is_in_use(const std::filesystem::path& path);
  Directory(Directory&&) noexcept = default;
  Directory& operator=(Directory&&) = delete;
  ~Directory();  ///< removes the sockets

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path socket(const char* name) const { return path_ / name; }
  /// Sets the mode of a socket that was bound here, so that clients can connect. Remembers it for loss().
  Result<void> set_socket_mode(const char* name);
  /// Why clients cannot reach these sockets: the directory or one of them was deleted or replaced, for
  /// example by a cleaner of /tmp. Empty if they can. Any thread, except concurrently with set_socket_mode().
  [[nodiscard]] std::string loss() const;

 private:
  Directory(std::filesystem::path path, ring::UniqueFd folder, ring::UniqueFd lock, Reach reach)
      : path_(std::move(path)), folder_(std::move(folder)), lock_(std::move(lock)), reach_(reach) {}
  void remove_sockets() const;

  using FileId = std::pair<dev_t, ino_t>;

  std::filesystem::path path_;
  ring::UniqueFd folder_;  ///< O_PATH
  ring::UniqueFd lock_;
  Reach reach_;
  std::vector<std::pair<std::string, FileId>> sockets_;  ///< those of set_socket_mode()
};

}  // namespace headrace::server::session
