// A folder for temporary files that is removed with its process, or else when the next process creates its
// own.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::verbs {

/// Locked by its process; the kernel releases the lock however the process ends
/// (bindings/headrace/_scratch.py does the same).
class ScratchFolder {
 public:
  /// <temporary files>/<prefix>XXXXXX; also removes this user's folders with this prefix that no process has
  /// locked. kEnvironment: it cannot be created.
  static Result<ScratchFolder> make(const std::string& prefix);
  ScratchFolder(ScratchFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  ScratchFolder(std::filesystem::path path, ring::UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  ring::UniqueFd lock_;
};

}  // namespace headrace::server::verbs
