// Atomic creation of a file, even in a directory that others can write to.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "clientlib/base/unique_fd.h"

namespace headrace {

/// A file that is written as "NAME.<random>.tmp" and then renamed or linked to its name in the same
/// directory. O_EXCL ensures that no existing file or link is written to. The destructor removes a file that
/// has not been given its name. The directory's descriptor must outlive this object. Errors are errno values;
/// 0 means success. Not thread safe.
class NewFile {
 public:
  static constexpr std::string_view kSuffix =
      ".tmp";  ///< of temporary files, which remain when the process is killed

  /// `name` is relative to `directory`.
  static tl::expected<NewFile, int> create(int directory, std::string name, mode_t mode = 0600);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&& other) noexcept;
  ~NewFile();

  [[nodiscard]] int write(const void* data, std::size_t size);
  /// Gives the file its name, and replaces an existing file.
  [[nodiscard]] int replace();
  /// Gives the file its name. EEXIST if a file of that name exists, which stays unchanged.
  [[nodiscard]] int add();

 private:
  NewFile(int directory, std::string name, std::string aside, UniqueFd fd)
      : directory_(directory), name_(std::move(name)), aside_(std::move(aside)), fd_(std::move(fd)) {}

  int directory_;
  std::string name_, aside_;  // aside_: the temporary name; empty once it no longer exists
  UniqueFd fd_;
};

}  // namespace headrace
