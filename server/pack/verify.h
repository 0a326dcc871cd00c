// `headrace verify`: checks every record of a packed database.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/store/store.h"

namespace headrace::server::pack {

struct VerifyOptions {
  unsigned threads = 1;
  bool decode = false;  ///< images, too
};

struct BadRecord {
  std::uint64_t index = 0;
  std::string what;  ///< "cat/1.jpg: its checksum is wrong"
};

struct VerifyReport {
  std::uint64_t checked = 0, bytes = 0;
  std::uint64_t bad = 0;
  std::vector<BadRecord> first;  ///< the first ten, by index
  std::optional<Error> lost;     ///< the file was truncated meanwhile: ignore the rest
};

/// Checks bounds, checksums, labels against their table, and compression; with `decode` also each image,
/// except those that were undecodable when they were packed. Calls `on_progress(done, bytes)` now and then,
/// by one thread at a time.
VerifyReport verify(const store::Store& store, const VerifyOptions& options,
                    const std::function<void(std::uint64_t, std::uint64_t)>& on_progress);

}  // namespace headrace::server::pack
