// Atomic creation of a file, even in a directory that others can write to.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "clientlib/base/unique_fd.h"

namespace headrace {

/// Written as "NAME.<random>.tmp" (O_EXCL: an existing file or link is never written to), then given
/// its name by a rename or link within the directory. Destroyed before that, it leaves nothing.
/// The directory's descriptor must outlive it. Errors are errno values, 0 for none. Not thread safe.
class NewFile {
 public:
  static constexpr std::string_view kSuffix = ".tmp";  ///< of temporary files, which a killed process leaves

  /// `name` is relative to `directory`.
  static tl::expected<NewFile, int> create(int directory, std::string name, mode_t mode = 0600);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&& other) noexcept;
  ~NewFile();

  [[nodiscard]] int write(const void* data, std::size_t size);
  /// Renames over an existing file, if any.
  [[nodiscard]] int replace();
  /// Gives the file its name unless that exists: EEXIST, and the existing file stays.
  [[nodiscard]] int add();

 private:
  NewFile(int directory, std::string name, std::string aside, UniqueFd fd)
      : directory_(directory), name_(std::move(name)), aside_(std::move(aside)), fd_(std::move(fd)) {}

  int directory_;
  std::string name_, aside_;  // aside_ is empty once that name is gone
  UniqueFd fd_;
};

}  // namespace headrace
