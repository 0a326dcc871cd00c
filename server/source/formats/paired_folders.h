// Folders whose images belong together by name: low and high resolution, image and mask. A folder with a
// data.mdb is a database that BasicSR made (basicsr_lmdb.h) instead of one with files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

struct PairedFolder {
  std::filesystem::path path;
  std::string names =
      "{}";  ///< how files are called: {} is what partners have in common, without the extension
  std::int32_t scale = 0;  ///< see SourceField; 0: as the first sample's sizes say
  bool mask = false;
};

/// A sample per name, in the order of names; a name is the path below the folder without its extension. A
/// field per folder, by its key; no classes. kDatasetInvalid: a folder that is missing or without images,
/// images without partner or two for one (the first ten of each), sizes of the first sample that are no whole
/// multiples; of databases, which know the sizes of all their images, also those that do not fit the scale
/// (the first ten), and what BasicSrColumn::open() refuses.
Result<std::shared_ptr<const Source>> open_paired_folders(const std::map<std::string, PairedFolder>& folders);

}  // namespace headrace::server::source
