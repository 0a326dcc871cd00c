// A file's bytes as read-only memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "headrace/error.h"
#include "server/mapped/watched_map.h"
#include "server/source/files/whole_file.h"

namespace headrace::server::source {

/// Bytes, and the owner of their memory.
struct MappedBytes {
  std::span<const std::uint8_t> view;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const mapped::WatchedMap> map = {};  ///< null: not mapped

  /// See WatchedMap.
  [[nodiscard]] std::optional<Error> fault() const { return map ? map->fault() : std::nullopt; }
};

/// Maps the whole file. If the file is truncated while it is mapped, the lost part reads as other bytes:
/// check fault(). kDatasetInvalid: missing, not a regular file, empty, unreadable. The content of a URL is
/// fetched into memory: see fetch_whole().
Result<MappedBytes> map_file(const std::filesystem::path& path, const RemotePtr& remote = {});

}  // namespace headrace::server::source
