// A copy-on-write mapping of a segment: which of its pages this process has made its own by writing to them,
// and how to have all of them, or none.
//
// Linux keeps the pages of a private mapping that nobody wrote to equal to the file's (POSIX leaves it open),
// /proc/self/pagemap tells them from those that were written to, and the first write to one is counted as a
// page fault. All three are tried once before anything relies on them; where they do not hold (other kernels,
// no /proc), there is no PrivatePages.
//
// Thread safety: any thread; of one range, one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "clientlib/ring/unique_fd.h"

namespace headrace::ring {

class PrivatePages {
 public:
  /// nullopt: this kernel cannot, hides /proc/self/pagemap, or forbids overcommit. Of this process: a forked
  /// child opens its own.
  static std::optional<PrivatePages> open();

  /// Page faults that threads of this process have taken so far; nullopt: it may not ask. While it stays the
  /// same none of them has made a page its own, by a write, a read() into it, mlockall() or otherwise. Who
  /// writes there without them is not seen: another process (process_vm_writev), a device that takes faults
  /// of its own. With one thread a fifth of the cost of a look at 60 pages, as much as one with 130 threads.
  static std::optional<std::uint64_t> faults();

  /// How many pages of `range` (page-aligned) are this process's own; all of them if that cannot be told.
  [[nodiscard]] std::size_t count(std::span<const std::byte> range) const;

  /// Makes every page of `range` its own, contents unchanged, also while others read and write there.
  static void take(std::span<std::byte> range);

  /// From here on `range` shows the file's pages again: those of `fd` at `offset`. How many were own.
  std::size_t drop(std::span<std::byte> range, int fd, std::size_t offset) const;

 private:
  /// Calls found(first, count) for each run of own pages; of all, if that cannot be told.
  template <class F>
  void own_runs(std::span<const std::byte> range, F found) const;
  explicit PrivatePages(UniqueFd pagemap) : pagemap_(std::move(pagemap)) {}
  UniqueFd pagemap_;
};

std::size_t page_size();

}  // namespace headrace::ring
