// A placement put into effect. All of it is a wish: where the kernel or a container refuses, the log says so
// once, and everything is as it would be without.
#pragma once

#include <cstddef>
#include <span>

namespace headrace::server::placement {

/// The calling thread runs on these CPUs alone.
void run_on(std::span<const int> cpus);

/// While it lives, what this thread and threads that it starts meanwhile (for all their life) are the first
/// to write lies on `nodes` in turn. Nothing is done without nodes, nor where the process was started with a
/// policy of its own (numactl). Make and destroy it on one thread.
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

/// If the calling thread's memory is interleaved, these pages, which nobody has written yet, are so, too,
/// whoever writes them first. `memory`: begins a page.
void interleave_as_here(void* memory, std::size_t bytes);

/// False: the calling thread's memory is interleaved, and huge pages could not be (Docker forbids move_pages
/// even with SYS_NICE): then they should not be asked for.
bool huge_pages_would_lie_in_turn();

/// If the calling thread's memory is interleaved, huge pages that begin at `memory` are moved to its nodes in
/// turn: khugepaged's collapse puts them onto the node that has most of the small ones, and of equals onto
/// the first. `bytes`: a multiple of kHugePage.
void interleave_huge_pages(void* memory, std::size_t bytes);
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace headrace::server::placement
