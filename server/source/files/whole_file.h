// Reads a whole file when its source is opened, as it is or uncompressed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "headrace/error.h"
#include "server/remote/remote.h"

namespace headrace::server::source {

/// Reads paths that are URLs; null if there are none.
using RemotePtr = std::shared_ptr<const remote::Remote>;

/// Uncompresses gzip, which it detects by content; other files are read as they are. kDatasetInvalid:
/// missing, unreadable, not a file, damaged, or more than `most` bytes; each with the path and a remedy. For
/// a URL: Remote's errors, and at most as many bytes as there is memory for.
Result<std::vector<std::uint8_t>> read_whole(const std::filesystem::path& path, const RemotePtr& remote = {},
                                             std::uint64_t most = std::uint64_t{64} << 30);
/// The bytes of a URL as they are.
Result<std::vector<std::uint8_t>> fetch_whole(const std::string& url, const RemotePtr& remote,
                                              std::uint64_t most = std::uint64_t{64} << 30);
/// Whether it exists. For a URL: Remote's errors.
Result<bool> is_there(const std::filesystem::path& path, const RemotePtr& remote);

}  // namespace headrace::server::source
