// A temporary folder for a test. The destructor removes it, whatever the test did to its permissions.
#pragma once

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp is POSIX's

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace headrace {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "headrace-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), "mkdtemp " + pattern);
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Writes a file, and creates its parent folders. Returns its path.
  std::filesystem::path put(const std::filesystem::path& file, std::string_view content) const {
    const std::filesystem::path target = path_ / file;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return target;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace headrace
