#include "server/cache/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "server/log/log.h"
#include "server/placement/apply.h"

namespace headrace::server::cache {

Result<std::shared_ptr<Arena>> Arena::create(std::string name, std::uint64_t budget) {
  budget -= budget % kAlignment;
  if (budget == 0)
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{}: a budget below {} bytes holds nothing", name, kAlignment));
  void* const memory =
      ::mmap(nullptr, budget, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return fail(ErrorCode::kNotEnoughMemory,
                fmt::format("{}: no address space for {} bytes: {}; lower the budget, or raise the limit "
                            "(ulimit -v, vm.overcommit_memory)",
                            name, budget, std::strerror(errno)));
  placement::interleave_as_here(memory, budget);  // each worker fills some of it, and all workers read it
  // Samples are read in random order and the rows of an image are far apart: with pages of 4 KiB most
  // accesses miss the TLB. If memory is fragmented, the kernel may compact it first, which costs one wait for
  // megabytes that took longer to decode. This is only a hint.
  ::madvise(memory, budget, MADV_HUGEPAGE);
  return std::shared_ptr<Arena>(new Arena(std::move(name), budget, static_cast<std::byte*>(memory)));
}

Arena::~Arena() {
  ::munmap(begin_, budget_);
}

std::byte* Arena::allocate(std::uint64_t size) {
  std::uint64_t at = used_.load(std::memory_order_relaxed);
  do {
    if (size > budget_ - at) return nullptr;  // rounded(size) fits as well: the budget is a multiple
  } while (!used_.compare_exchange_weak(at, at + rounded(size), std::memory_order_relaxed));
  return begin_ + at;
}

void Arena::count_refusal() {
  constexpr std::uint64_t kTelling = 16;
  if (refused_.fetch_add(1, std::memory_order_relaxed) + 1 != kTelling || used() > 0) return;
  log::warn("{}: none of the first {} samples could be kept: they are larger than its {} bytes, or bad",
            name_, kTelling, budget_);
}

Arena::Counts Arena::counts() const {
  Counts all{.samples = samples_.load(std::memory_order_relaxed)};
  for (const Stripe& stripe : stripes_) {
    all.hits += stripe.hits.load(std::memory_order_relaxed);
    all.misses += stripe.misses.load(std::memory_order_relaxed);
  }
  return all;
}

Arena::Stripe& Arena::stripe() {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t mine = threads.fetch_add(1, std::memory_order_relaxed);
  return stripes_[mine % stripes_.size()];
}

}  // namespace headrace::server::cache
