// A folder of images in which each class is a folder, in a bucket: image_folder.h over S3.
#pragma once

#include <memory>
#include <string>

#include "server/remote/remote.h"
#include "server/source/source.h"

namespace headrace::server::source {

/// Samples, classes and their order are those of open_image_folder() over the same files in a folder, and so
/// is the fingerprint: all sizes come with the listing. Each class is listed on its own, several at a time.
/// Keys that end with "/" are no files. Memory: 24 bytes and the key's own per file.
///
/// kDatasetInvalid: nothing below the URL, no class folders, classes without images. Remote's errors.
Result<std::shared_ptr<const Source>> open_url_folder(const std::string& url,
                                                      const std::shared_ptr<const remote::Remote>& remote);

}  // namespace headrace::server::source
