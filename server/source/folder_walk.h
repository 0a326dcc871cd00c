// Lists the image files below one class folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

struct FoundFile {
  std::string name;  ///< without its folder
  std::uint64_t bytes = 0;
};

/// Images of kinds that torchvision's ImageFolder takes and no decoder here reads.
struct LeftOut {
  std::uint64_t count = 0;
  std::string first;  ///< by name; relative to the root once it leaves `walk`

  void add(std::uint64_t more, const std::string& name);
};

struct FoundFolder {
  std::string path;  ///< relative to the root
  std::vector<FoundFile> files;
};

struct Entries {
  std::vector<std::string> folders;
  std::vector<FoundFile> images;
  LeftOut left_out;
};

/// What one folder holds (`path` relative to the directory `root_fd`, "." for itself), sorted by name.
Result<Entries> list_folder(int root_fd, const std::string& path, const std::string& shown_root);

/// All folders from `path` down, sorted by path as strings; files sorted by name.
/// What is left out is added to `left_out`.
Result<std::vector<FoundFolder>> walk(int root_fd, const std::string& path, const std::string& shown_root,
                                      LeftOut& left_out);

/// jpg, jpeg or png in any case.
bool is_image_name(std::string_view name);
/// ppm, bmp, pgm, tif, tiff or webp in any case: see LeftOut.
bool is_left_out_name(std::string_view name);

}  // namespace headrace::server::source
