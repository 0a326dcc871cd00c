// Keeps samples read from a slow source on a local disk: one file per sample, in the record format of packed
// databases (server/store/record.h), named by the dataset's fingerprint and the sample's index. Every read
// checks the checksum and the name; a damaged or foreign file is replaced by what the source gives.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/io/cache_folder.h"
#include "server/source/combine/forwarding.h"

namespace headrace::server::io {

/// Thread safety: the same as Source's.
class DiskCache final : public source::ForwardingSource {
 public:
  DiskCache(std::shared_ptr<const source::Source> real, std::shared_ptr<CacheFolder> folder);

  Result<void> read(std::uint64_t index, source::Sample& out) const override {
    return read_fields(index, source::FieldSet::all(), out);
  }
  /// Keeps whole samples: the files outlive this server, and later jobs may read other fields. If one cannot
  /// be read, reads only the wanted fields.
  Result<void> read_fields(std::uint64_t index, source::FieldSet wanted, source::Sample& out) const override;

  struct Counts {
    std::uint64_t hits = 0;          ///< samples served from the cache
    std::uint64_t misses = 0;        ///< samples read from the source
    std::uint64_t damaged = 0;       ///< part of `misses`: the file existed but was damaged
    std::uint64_t write_errors = 0;  ///< in the folder
    std::uint64_t bytes = 0;         ///< in the folder, for all servers and datasets
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
  // On one cache line for all threads: each count comes with a disk read, which is far slower.
  mutable std::atomic<std::uint64_t> hits_{0}, misses_{0}, damaged_{0};
};

}  // namespace headrace::server::io
