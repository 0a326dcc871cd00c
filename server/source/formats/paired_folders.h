// Folders whose images belong together by name: low and high resolution, image and mask. A folder with a
// data.mdb is read as a BasicSR database (basicsr_lmdb.h), not as image files.
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
  /// Pattern of the file names without extension; {} is the part that partners share.
  std::string names = "{}";
  std::int32_t scale = 0;  ///< see SourceField; 0: derived from the sizes of the first sample
  bool mask = false;
};

/// One sample per name, in the order of names; a name is the path below the folder without its extension. One
/// field per folder, by its key; no classes. kDatasetInvalid: a folder that is missing or has no images,
/// images without a partner or with two (the first ten of each), sizes of the first sample that are not whole
/// multiples of each other; for databases, which know all image sizes, also images that do not fit the scale
/// (the first ten), and what BasicSrColumn::open() refuses.
Result<std::shared_ptr<const Source>> open_paired_folders(const std::map<std::string, PairedFolder>& folders);

}  // namespace headrace::server::source
