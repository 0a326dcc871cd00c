// Lists the image files below one class folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

/// Images of kinds that torchvision's ImageFolder takes and no decoder here reads.
struct LeftOut {
  std::uint64_t count = 0;
  std::string first;  ///< by name; relative to the root once it leaves `walk`

  void add(std::uint64_t more, const std::string& name);
  /// For who reads `root`; empty where nothing is left out.
  [[nodiscard]] std::string warning(const std::string& root) const;
};

struct FoundFolder {
  std::string path;                ///< relative to the root
  std::vector<std::string> files;  ///< without it
};

struct Entries {
  std::vector<std::string> folders;
  std::vector<std::string> images;
  LeftOut left_out;
};

/// What one folder holds (`path` relative to the directory `root_fd`, "." for itself), sorted by name. As the
/// folder lists it: single files are looked at only if they are links, or the file system does not list what
/// they are.
Result<Entries> list_folder(int root_fd, const std::string& path, const std::string& shown_root);

/// All folders from `path` down, sorted by path as strings; files sorted by name.
/// What is left out is added to `left_out`.
Result<std::vector<FoundFolder>> walk(int root_fd, const std::string& path, const std::string& shown_root,
                                      LeftOut& left_out);

/// Refuses class folders without images: `empty` of the `total` folders of `root`.
Error empty_classes(const std::string& root, std::vector<std::string> empty, std::size_t total);

/// What speaks for `root` being one folder above that of the class folders: there is one class, or classes
/// are called as sets are (train, val). Empty: nothing.
std::string classes_warning(const std::string& root, const std::vector<std::string>& classes);

/// Two warnings as one; either may be empty.
std::string joined(std::string first, const std::string& second);

/// What the system says of `what`, and what to do about it.
Error scan_error(const std::string& what, int error);

/// jpg, jpeg or png in any case.
bool is_image_name(std::string_view name);
/// ppm, bmp, pgm, tif, tiff or webp in any case: see LeftOut.
bool is_left_out_name(std::string_view name);

}  // namespace headrace::server::source
