// The server's directory: where its sockets live. One server per directory, held by a lock on
// <directory>/lock that the kernel drops with the process; what a killed server left there is cleared by the
// next one. Nobody but the server's user and root may write to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::session {

/// Whom the modes of the directory and of its sockets let in. Who is served is decided by admission.h.
enum class Reach : std::uint8_t {
  kOwner,     ///< the server's user and root: directory 0700, sockets 0600
  kEverybody  ///< directory 0711 at least, sockets 0666: modes cannot name the users of `server.allow`
};

class Directory {
 public:
  /// Creates it if need be, locks it, removes stale sockets. kDirectoryInUse says which pid holds it;
  /// kPermissionDenied: it is a symbolic link, another user's, or writable by group or others; kEnvironment
  /// if it cannot be made or a socket path in it would be too long (sun_path: 108 bytes).
  static Result<Directory> claim(const std::filesystem::path& path, Reach reach);
  /// Those of claim()'s errors that show without making or locking anything.
  static Result<void> check(const std::filesystem::path& path);
  Directory(Directory&&) noexcept = default;
  Directory& operator=(Directory&&) = delete;
  ~Directory();  ///< removes the sockets

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path socket(const char* name) const { return path_ / name; }
  /// Gives a socket that was bound here the mode that lets clients connect.
  Result<void> set_socket_mode(const char* name) const;

 private:
  Directory(std::filesystem::path path, ring::UniqueFd folder, ring::UniqueFd lock, Reach reach)
      : path_(std::move(path)), folder_(std::move(folder)), lock_(std::move(lock)), reach_(reach) {}
  void remove_sockets() const;

  std::filesystem::path path_;
  ring::UniqueFd folder_;  ///< O_PATH
  ring::UniqueFd lock_;
  Reach reach_;
};

}  // namespace headrace::server::session
