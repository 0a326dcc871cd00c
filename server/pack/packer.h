// `headrace pack`: a source becomes one database, by all cores, and goes on where a former run ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/decode/tile_jpeg.h"
#include "server/pack/feed.h"
#include "server/source/source.h"
#include "server/store/writer.h"

namespace headrace::server::pack {

struct PackOptions {
  store::Options how;
  unsigned threads = 1;
  store::WriterOptions writer;
};

struct PackProgress {
  std::uint64_t done = 0;       ///< samples; those of former runs are done
  std::uint64_t total = 0;      ///< 0: not known
  std::uint64_t raw_bytes = 0;  ///< read by this run
};

struct PackReport {
  bool was_complete = false;
  bool stopped = false;      ///< by `stop`, before the end
  std::uint64_t before = 0;  ///< samples that former runs packed
  std::uint64_t packed = 0;  ///< samples that are there now
  std::uint64_t total = 0;   ///< 0: not known
  std::uint64_t raw_bytes = 0, file_bytes = 0;
  std::uint64_t undecodable = 0, warned = 0;  ///< `warned`: of this run
  decode::TilingCounts tiling;                ///< of this run
  std::vector<std::string> first_undecodable;
};

/// Reads, decodes and compresses on `threads` threads, writes in order on the caller's. `stop` is looked at
/// after each sample: then what is ready is committed, and the report says `stopped`. `tell` is called after
/// each sample, by the caller's thread. Memory: some 256 MB of finished records at most, and one transaction.
///
/// Errors: the feed's; Writer's; kInvalidArgument: a class name that is not UTF-8, a resize that makes no
/// sense. What was committed stays.
Result<PackReport> pack(const source::Source& source, const std::filesystem::path& out,
                        const PackOptions& options, const std::atomic<bool>& stop,
                        const std::function<void(const PackProgress&)>& tell);
Result<PackReport> pack(Feed& feed, const std::filesystem::path& out, const PackOptions& options,
                        const std::atomic<bool>& stop, const std::function<void(const PackProgress&)>& tell);

}  // namespace headrace::server::pack
