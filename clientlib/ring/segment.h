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
  kCopyOnWrite  ///< writes stay private to this process: see private_pages.h
};
/// Whether the seals also forbid new writable mappings (the server keeps its own). They always forbid
/// resizing and further seals.
enum class ClientAccess : std::uint8_t { kReadOnly, kReadWrite };

/// The memory in bytes that this process can still allocate, and the limit that applies. It is the minimum of
/// the cgroup v2 or v1 limits of all enclosing groups (memory.max - memory.current, where reclaimable file
/// cache does not count as used), of RLIMIT_AS, and of MemAvailable.
struct MemoryHeadroom {
  std::uint64_t bytes = 0;
  std::string limited_by;  ///< e.g. "cgroup memory.max"
};
/// `root`: a prefix for /proc and the cgroup mount points (for tests). `freed`: bytes that another process
/// uses now and will free before this one allocates. They count as available, but no limit is raised by them.
MemoryHeadroom memory_headroom(const std::string& root = "", std::uint64_t freed = 0);
/// The same for memory that is mapped already: without RLIMIT_AS.
MemoryHeadroom mapped_headroom(const std::string& root = "");

/// Whether the seals allow new writable mappings of this segment.
bool clients_may_write(int fd);

class Segment {
 public:
  /// Creates a zero-filled segment of fixed size, maps it read-write, allocates its first `allocated` bytes,
  /// and seals it. `name` appears in /proc/PID/maps. Errors: those of allocate().
  static Result<Segment> create(const std::string& name, std::size_t bytes, ClientAccess clients,
                                std::size_t allocated);
  static Result<Segment> create(const std::string& name, std::size_t bytes, ClientAccess clients) {
    return create(name, bytes, clients, bytes);
  }

  /// Allocates the bytes [from, to) with posix_fallocate, so that no access to them can raise SIGBUS later.
  /// kNotEnoughMemory names the needed and the available bytes.
  [[nodiscard]] Result<void> allocate(const std::string& name, std::size_t from, std::size_t to) const;

  /// Maps a received descriptor. kBadMessage: it is smaller than `min_bytes`, or not sealed against resizing.
  /// (An unsealed one could be truncated while mapped, which raises SIGBUS.)
  static Result<Segment> map(UniqueFd fd, Access access, std::size_t min_bytes);

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(region_.get_address()); }
  [[nodiscard]] std::size_t size() const { return region_.get_size(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Releases the descriptor to the caller; the mapping stays.
  [[nodiscard]] UniqueFd take_fd() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  boost::interprocess::mapped_region region_;
};

}  // namespace headrace::ring
