// A file that is read whole when its source is opened, as it is or unpacked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "headrace/error.h"
#include "server/remote/remote.h"

namespace headrace::server::source {

/// What reads paths that are URLs; null where there are none.
using RemotePtr = std::shared_ptr<const remote::Remote>;

/// Unpacks gzip, by content; other files come as they are. kDatasetInvalid: missing, unreadable, no file,
/// damaged, or more than `most` bytes; each with the path and what to do. Of a URL Remote's errors, and no
/// more bytes than there is memory for.
Result<std::vector<std::uint8_t>> read_whole(const std::filesystem::path& path, const RemotePtr& remote = {},
                                             std::uint64_t most = std::uint64_t{64} << 30);
/// The bytes behind a URL as they are.
Result<std::vector<std::uint8_t>> fetch_whole(const std::string& url, const RemotePtr& remote,
                                              std::uint64_t most = std::uint64_t{64} << 30);
/// Whether it is there. Of a URL Remote's errors.
Result<bool> is_there(const std::filesystem::path& path, const RemotePtr& remote);

}  // namespace headrace::server::source
