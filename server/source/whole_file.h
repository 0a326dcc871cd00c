// A file that is read whole when its source is opened, as it is or unpacked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

/// Unpacks gzip, by content; other files come as they are. kDatasetInvalid: missing, unreadable, no file,
/// damaged, or more than `most` bytes; each with the path and what to do.
Result<std::vector<std::uint8_t>> read_whole(const std::filesystem::path& path,
                                             std::uint64_t most = std::uint64_t{64} << 30);

}  // namespace headrace::server::source
