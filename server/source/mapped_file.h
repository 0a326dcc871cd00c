// A file's bytes as memory, read only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "headrace/error.h"
#include "server/source/whole_file.h"

namespace headrace::server::source {

/// Bytes, and what keeps them.
struct MappedBytes {
  std::span<const std::uint8_t> view;
  std::shared_ptr<const void> owner;
};

/// Maps all of it. A file that is cut while it is mapped ends the process (SIGBUS) where its lost part is
/// read: data must not change while it is served. kDatasetInvalid: missing, no regular file, empty,
/// unreadable. What lies behind a URL is fetched into memory: see fetch_whole().
Result<MappedBytes> map_file(const std::filesystem::path& path, const RemotePtr& remote = {});

}  // namespace headrace::server::source
