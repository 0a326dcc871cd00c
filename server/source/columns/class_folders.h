// A source of images in one folder per class, once these are listed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/source/columns/image_column.h"
#include "server/source/files/folder_walk.h"
#include "server/source/source.h"

namespace headrace::server::source {

struct ClassFolders {
  std::string root;  ///< as messages call it
  std::unique_ptr<ImageColumn> images;
  std::vector<std::uint32_t> labels;  ///< of the images
  std::vector<std::string> classes;
  std::vector<std::string> empty;  ///< those of the classes that have no image
  LeftOut left_out;
};

/// Error: a class without images; what ImageColumn::finish() refuses.
Result<std::shared_ptr<const Source>> make_class_folders(ClassFolders found);

}  // namespace headrace::server::source
