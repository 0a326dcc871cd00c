// A copy-on-write mapping of a segment. A page becomes private to this process when the process writes to it;
// comments call such a page an own page. Counts own pages, turns all pages into own pages, or drops them.
//
// This relies on three properties of Linux. Pages of a private mapping stay equal to the file's until they
// are written to (POSIX leaves this open). /proc/self/pagemap shows which pages were written to. The first
// write to a page counts as a page fault. open() tests all three once, and fails where they do not hold
// (other kernels, no /proc).
//
// Thread safety: any thread; one call at a time for each range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "clientlib/ring/unique_fd.h"

namespace headrace::ring {

class PrivatePages {
 public:
  /// nullopt: the kernel lacks these properties, hides /proc/self/pagemap, or forbids overcommit. The object
  /// is for this process only: a forked child must open its own.
  static std::optional<PrivatePages> open();

  /// The number of page faults of this process so far; nullopt if the system does not report it. While it
  /// stays the same, no thread has created an own page (by a write, a read() into the page, mlockall() or
  /// otherwise). Writes by another process (process_vm_writev), or by a device that handles its own faults,
  /// do not count. Cost: in a process with one thread, a fifth of count() for 60 pages; with 130 threads, as
  /// much as count().
  static std::optional<std::uint64_t> faults();

  /// The number of own pages in `range` (page-aligned); all of them if that is unknown.
  [[nodiscard]] std::size_t count(std::span<const std::byte> range) const;

  /// Turns every page of `range` into an own page. The contents stay the same, even while other threads read
  /// and write there.
  static void own_all(std::span<std::byte> range);

  /// Drops the own pages of `range`, which then shows the file's bytes again: those of `fd` at `offset`.
  /// Returns how many pages were own.
  std::size_t drop(std::span<std::byte> range, int fd, std::size_t offset) const;

 private:
  /// Calls found(first, count) for each run of own pages; all pages if that is unknown.
  template <class F>
  void own_runs(std::span<const std::byte> range, F found) const;
  explicit PrivatePages(UniqueFd pagemap) : pagemap_(std::move(pagemap)) {}
  UniqueFd pagemap_;
};

std::size_t page_size();

}  // namespace headrace::ring
