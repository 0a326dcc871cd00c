// Applies a placement. All of it is best effort: if the kernel or a container refuses, the log says so once,
// and the default applies.
#pragma once

#include <cstddef>
#include <span>

namespace headrace::server::placement {

/// Restricts the calling thread to these CPUs.
void run_on(std::span<const int> cpus);

/// While it exists, pages that this thread, or a thread that it starts meanwhile (for its whole life), is the
/// first to write are interleaved over `nodes`. No effect without nodes, or if the process was started with a
/// policy of its own (numactl). Create and destroy it on one thread.
class InterleavedMemory {
 public:
  explicit InterleavedMemory(std::span<const int> nodes);
  ~InterleavedMemory();
  InterleavedMemory(const InterleavedMemory&) = delete;
  InterleavedMemory& operator=(const InterleavedMemory&) = delete;
  [[nodiscard]] bool in_effect() const { return in_effect_; }

 private:
  bool in_effect_ = false;
};

/// If the calling thread's memory is interleaved, these unwritten pages become interleaved, too, whichever
/// thread writes them first. `memory`: the start of a page.
void interleave_as_here(void* memory, std::size_t bytes);

/// False: the calling thread's memory is interleaved, but huge pages could not be (Docker forbids move_pages
/// even with SYS_NICE), so they should not be requested.
bool huge_pages_would_lie_in_turn();

/// If the calling thread's memory is interleaved, moves the huge pages from `memory` on to its nodes in turn:
/// khugepaged puts them onto the node with most of their small pages and, among equals, onto the first.
/// `bytes`: a multiple of kHugePage.
void interleave_huge_pages(void* memory, std::size_t bytes);
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace headrace::server::placement
