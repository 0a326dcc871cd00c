// One shared-memory segment: a sealed memfd and its mapping.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::ring {

enum class Access : std::uint8_t {
  kReadOnly,
  kReadWrite,
  kCopyOnWrite  ///< writes stay with this process: see private_pages.h
};
/// What the seals forbid besides resizing and further seals: new writable mappings (the server keeps its
/// own).
enum class ClientAccess : std::uint8_t { kReadOnly, kReadWrite };

/// Memory that this process can still take: the least of cgroup v2/v1 (memory.max - memory.current, with
/// reclaimable file cache not counted as used, up the hierarchy), RLIMIT_AS headroom, and MemAvailable.
/// Bytes, and which of them it is.
struct MemoryHeadroom {
  std::uint64_t bytes = 0;
  std::string limited_by;  ///< e.g. "cgroup memory.max"
};
/// `root` is put before /proc and the cgroup mount points (for tests).
MemoryHeadroom memory_headroom(const std::string& root = "");

/// Whether the seals leave new writable mappings of this segment possible.
bool clients_may_write(int fd);

class Segment {
 public:
  /// Creates, sizes with posix_fallocate (so no later SIGBUS), maps read-write, zero-filled, seals.
  /// kNotEnoughMemory names needed against available; `name` appears in /proc/PID/maps.
  static Result<Segment> create(const std::string& name, std::size_t bytes, ClientAccess clients);

  /// Maps a received descriptor. Refuses one that is not sealed against resizing or is smaller than
  /// `min_bytes` (kBadMessage): an unsealed one could be truncated under us, which is a SIGBUS.
  static Result<Segment> map(UniqueFd fd, Access access, std::size_t min_bytes);

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(region_.get_address()); }
  [[nodiscard]] std::size_t size() const { return region_.get_size(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Gives the descriptor away; the mapping stays.
  [[nodiscard]] UniqueFd take_fd() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  boost::interprocess::mapped_region region_;
};

}  // namespace headrace::ring
