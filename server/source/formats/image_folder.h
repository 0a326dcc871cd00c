// A folder of images in which each class is a folder: torchvision's ImageFolder, for JPEG and PNG.
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
/// also in nested folders, in ImageFolder's own order (folder, then file name). So sample i here is
/// sample i there, unless there are files of the kinds that only ImageFolder takes (ppm, bmp, pgm, tif, tiff,
/// webp): they are left out, and `warning` tells how many there are. It also tells where `root` seems to lie
/// above the folder of the classes. Symbolic links are followed. Folders are listed; the sizes of up to
/// 65,536 files, evenly spread, are asked for (SizeSample): the fingerprint is of all paths and of these
/// sizes. Memory: the relative paths plus 12 bytes per file.
///
/// kDatasetInvalid, each by name and with what to do: `root` missing, no folder or unreadable; no class
/// folders; classes without images; a link into nothing or in circles; a folder that holds itself; files of
/// the sample that the system does not let this user look at. kEnvironment: out of descriptors.
Result<std::shared_ptr<const Source>> open_image_folder(const std::filesystem::path& root,
                                                        const ReadPolicy& read = {});

}  // namespace headrace::server::source
