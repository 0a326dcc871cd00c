// Keeps what was read of a slow source on a local disk: a file per sample, in the format of packed databases
// (server/store/record.h), found by the dataset's fingerprint and the sample's index. Every read compares the
// checksum and the name: what is damaged, or somebody else's, is read anew and replaced.
#pragma once

#include <memory>

#include "server/io/cache_folder.h"
#include "server/source/forwarding.h"

namespace headrace::server::io {

/// Thread safety: as Source's.
class DiskCache final : public source::ForwardingSource {
 public:
  DiskCache(std::shared_ptr<const source::Source> real, std::shared_ptr<CacheFolder> folder);

  Result<void> read(std::uint64_t index, source::Sample& out) const override;

 private:
  enum class Found : std::uint8_t { kNone, kBad, kGood };
  Found load(const char* file, std::uint64_t index, source::Sample& out) const;
  void encode(std::uint64_t index, const source::Sample& sample) const;  ///< into the thread's buffer

  std::shared_ptr<CacheFolder> folder_;
  const std::uint64_t fingerprint_;
};

}  // namespace headrace::server::io
