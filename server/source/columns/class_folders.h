// Makes a source from images listed in one folder per class.
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
  std::string root;  ///< the root's name in messages
  std::unique_ptr<ImageColumn> images;
  std::vector<std::uint32_t> labels;  ///< one per image
  std::vector<std::string> classes;
  std::vector<std::string> empty;  ///< classes without an image
  LeftOut left_out;
  std::vector<std::string> strays;  ///< images outside the class folders; they have no class
};

/// Errors: a class without images; what ImageColumn::finish() refuses.
Result<std::shared_ptr<const Source>> make_class_folders(ClassFolders found);

}  // namespace headrace::server::source
