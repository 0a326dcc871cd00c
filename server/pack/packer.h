// `headrace pack`: packs a source into one database, on all cores, and continues where an earlier run ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/decode/tile_jpeg.h"
#include "server/pack/input.h"
#include "server/source/source.h"
#include "server/store/writer.h"

namespace headrace::server::pack {

struct PackOptions {
  store::Options how;
  unsigned threads = 1;
  store::WriterOptions writer;
};

struct PackProgress {
  std::uint64_t done = 0;       ///< samples, including those of earlier runs
  std::uint64_t total = 0;      ///< 0: not known
  std::uint64_t raw_bytes = 0;  ///< read by this run
};

struct PackReport {
  bool was_complete = false;
  bool stopped = false;      ///< `stop` was set before the end
  std::uint64_t before = 0;  ///< samples that earlier runs packed
  std::uint64_t packed = 0;  ///< samples that exist now
  std::uint64_t total = 0;   ///< 0: not known
  std::uint64_t raw_bytes = 0, file_bytes = 0;
  std::uint64_t undecodable = 0, warned = 0;  ///< `warned`: in this run
  decode::TilingCounts tiling;                ///< in this run
  std::vector<std::string> first_undecodable;
};

/// Reads, decodes and compresses on `threads` threads, and writes in order on the caller's. `stop` is checked
/// after each sample: then finished samples are committed, and the report says `stopped`. The caller's thread
/// calls `on_progress` after each sample. Memory: at most about 256 MB of finished records, and one
/// transaction.
///
/// Errors: the input's; Writer's; kInvalidArgument: a class name that is not UTF-8, an invalid resize.
/// Committed samples stay.
Result<PackReport> pack(const source::Source& source, const std::filesystem::path& out,
                        const PackOptions& options, const std::atomic<bool>& stop,
                        const std::function<void(const PackProgress&)>& on_progress);
Result<PackReport> pack(Input& input, const std::filesystem::path& out, const PackOptions& options,
                        const std::atomic<bool>& stop,
                        const std::function<void(const PackProgress&)>& on_progress);

}  // namespace headrace::server::pack
