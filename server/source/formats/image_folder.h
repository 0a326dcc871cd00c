// A folder of JPEG and PNG images with one folder per class, like torchvision's ImageFolder.
#pragma once

#include <filesystem>
#include <memory>

#include "server/described/description.h"
#include "server/source/files/file_reader.h"
#include "server/source/source.h"

namespace headrace::server::source {

struct ImageFolderOptions {
  std::filesystem::path path;  ///< or s3://bucket/folder

  static described::Description<ImageFolderOptions> description();
};

/// Indexes `root`: class folders sorted by name; within a class all files *.jpg, *.jpeg, *.png (any case),
/// also in nested folders, in ImageFolder's order (folder, then file name). Sample i is therefore
/// ImageFolder's sample i, unless there are files of formats that only ImageFolder accepts (ppm, bmp, pgm,
/// tif, tiff, webp): these are left out, and `warning` reports their number. It also reports images outside
/// the class folders, and if `root` seems to be one level above the class folders. Symbolic links are
/// followed. Folders are listed; the sizes of up to 65,536 files, evenly spread, are read (SizeSample): the
/// fingerprint covers all paths and these sizes. Memory: the relative paths plus 12 bytes per file.
///
/// kDatasetInvalid, each with the name and a remedy: `root` missing, not a folder or unreadable; no class
/// folders; classes without images; a dangling or circular link; a folder that contains itself; files of the
/// SizeSample that this user may not stat. kEnvironment: out of descriptors.
Result<std::shared_ptr<const Source>> open_image_folder(const std::filesystem::path& root,
                                                        const ReadPolicy& read = {});

}  // namespace headrace::server::source
