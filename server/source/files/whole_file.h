// Reads a whole file when its source is opened, as it is or uncompressed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "headrace/error.h"
#include "server/remote/remote.h"

namespace headrace::server::source {

/// Reads paths that are URLs; null if there are none.
using RemotePtr = std::shared_ptr<const remote::Remote>;

/// From a file's first bytes: the most that it can have.
using MostOf = std::function<std::uint64_t(std::span<const std::uint8_t> begin)>;

/// Uncompresses gzip, which it detects by content; other files are read as they are. kDatasetInvalid:
/// missing, unreadable, not a regular file, damaged, or more bytes than `most_of` says; each with the path
/// and a remedy. For a URL: Remote's errors. kNotEnoughMemory: more bytes than half of the free memory.
Result<std::vector<std::uint8_t>> read_whole(const std::filesystem::path& path, const RemotePtr& remote,
                                             const MostOf& most_of);
/// The bytes of a URL as they are.
Result<std::vector<std::uint8_t>> fetch_whole(const std::string& url, const RemotePtr& remote);
/// Whether it exists. For a URL: Remote's errors.
Result<bool> is_there(const std::filesystem::path& path, const RemotePtr& remote);

}  // namespace headrace::server::source
