// Lists the image files below one class folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

/// Images of formats that torchvision's ImageFolder accepts and no decoder here reads.
struct LeftOut {
  std::uint64_t count = 0;
  std::string first;  ///< the first by name; relative to the root once `walk` returns

  void add(std::uint64_t more, const std::string& name);
  /// A message for the user of `root`; empty if nothing is left out.
  [[nodiscard]] std::string warning(const std::string& root) const;
};

struct FoundFolder {
  std::string path;                ///< relative to the root
  std::vector<std::string> files;  ///< file names without the path
};

struct Entries {
  std::vector<std::string> folders;
  std::vector<std::string> images;
  LeftOut left_out;
};

/// The content of one folder (`path` relative to the directory `root_fd`, "." for itself), sorted by name. A
/// single file is stat'ed only if it is a link or the file system does not list its type.
Result<Entries> list_folder(int root_fd, const std::string& path, const std::string& shown_root);

/// All folders from `path` down, sorted by path as strings; files sorted by name. Adds to `left_out`.
Result<std::vector<FoundFolder>> walk(int root_fd, const std::string& path, const std::string& shown_root,
                                      LeftOut& left_out);

/// The error for class folders without images: `empty`, out of the `total` folders of `root`.
Error empty_classes(const std::string& root, std::vector<std::string> empty, std::size_t total);

/// A warning about images outside the class folders of `root`; empty without such images.
std::string strays_warning(const std::string& root, const std::vector<std::string>& strays);

/// A warning if `root` seems to be one level above the class folders: there is only one class, or classes
/// have names of sets (train, val). Empty: no sign of that.
std::string classes_warning(const std::string& root, const std::vector<std::string>& classes);

/// Joins two warnings; either may be empty.
std::string joined(std::string first, const std::string& second);

/// The system's error for `what`, with a remedy.
Error scan_error(const std::string& what, int error);

/// Whether the extension is jpg, jpeg or png in any case.
bool is_image_name(std::string_view name);
/// Whether the extension is ppm, bmp, pgm, tif, tiff or webp in any case: see LeftOut.
bool is_left_out_name(std::string_view name);

}  // namespace headrace::server::source
