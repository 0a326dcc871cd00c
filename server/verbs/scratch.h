// A folder for temporary files that goes with its process: at the latest when the next one makes its own.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::server::verbs {

/// Locked by its process, which the kernel undoes however that ends (bindings/headrace/_scratch.py does the
/// same).
class ScratchFolder {
 public:
  /// <temporary files>/<prefix>XXXXXX; removes this user's folders of this prefix that nobody holds any more.
  /// kEnvironment: it cannot be made.
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
