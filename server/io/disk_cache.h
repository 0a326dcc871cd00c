// Keeps what was read of a slow source on a local disk: a file per sample, in the format of packed databases
// (server/store/record.h), found by the dataset's fingerprint and the sample's index. Every read compares the
// checksum and the name: what is damaged, or somebody else's, is read anew and replaced.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/io/cache_folder.h"
#include "server/source/combine/forwarding.h"

namespace headrace::server::io {

/// Thread safety: as Source's.
class DiskCache final : public source::ForwardingSource {
 public:
  DiskCache(std::shared_ptr<const source::Source> real, std::shared_ptr<CacheFolder> folder);

  Result<void> read(std::uint64_t index, source::Sample& out) const override;

  struct Counts {
    std::uint64_t hits = 0;          ///< samples that were given out of the cache
    std::uint64_t misses = 0;        ///< samples that had to be read of the source
    std::uint64_t damaged = 0;       ///< of these, those that were there, and not as they should be
    std::uint64_t write_errors = 0;  ///< of the folder
    std::uint64_t bytes = 0;         ///< in the folder, by all servers and datasets
    std::uint64_t budget = 0;
    bool full = false;  ///< nothing is added any more
  };
  [[nodiscard]] Counts counts() const;

 private:
  enum class Found : std::uint8_t { kNone, kBad, kGood, kRefused };
  Found load(const char* file, std::uint64_t index, source::Sample& out) const;
  void encode(std::uint64_t index, const source::Sample& sample) const;  ///< into the thread's buffer

  std::shared_ptr<CacheFolder> folder_;
  const std::uint64_t fingerprint_;
  // A line for all threads: each of their counts comes with a read of a disk.
  mutable std::atomic<std::uint64_t> hits_{0}, misses_{0}, damaged_{0};
};

}  // namespace headrace::server::io
