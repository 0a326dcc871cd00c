// Lists the image files below one class folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

struct FoundFile {
  std::string name;  ///< without its folder
  std::uint64_t bytes = 0;
};

struct FoundFolder {
  std::string path;  ///< relative to the root
  std::vector<FoundFile> files;
};

struct Entries {
  std::vector<std::string> folders;
  std::vector<FoundFile> images;
};

/// What one folder holds (`path` relative to the directory `root_fd`, "." for itself), sorted by name.
Result<Entries> list_folder(int root_fd, const std::string& path, const std::string& shown_root);

/// All folders from `path` down, sorted by path as strings; files sorted by name.
Result<std::vector<FoundFolder>> walk(int root_fd, const std::string& path, const std::string& shown_root);

/// jpg, jpeg or png in any case.
bool is_image_name(std::string_view name);

}  // namespace headrace::server::source
