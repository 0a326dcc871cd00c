// A folder in a bucket with one folder of images per class: image_folder.h over S3.
#pragma once

#include <memory>
#include <string>

#include "server/remote/remote.h"
#include "server/source/source.h"

namespace headrace::server::source {

/// Samples, classes, their order and the fingerprint are those of open_image_folder() over the same files in
/// a folder: the listing includes all sizes. Each class is listed by itself, several at a time. Keys that end
/// with "/" are not files. Memory: 24 bytes plus the key per file.
///
/// kDatasetInvalid: nothing below the URL, no class folders, classes without images. Also Remote's errors.
Result<std::shared_ptr<const Source>> open_url_folder(const std::string& url,
                                                      const std::shared_ptr<const remote::Remote>& remote);

}  // namespace headrace::server::source
