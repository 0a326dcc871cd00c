#include "clientlib/ring/private_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "clientlib/base/contract.h"

namespace headrace::ring {
namespace {

// Documentation/admin-guide/mm/pagemap.rst
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
constexpr std::uint64_t kFileOrShared = std::uint64_t{1} << 61;

constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED (Linux 5.18), which older headers lack

bool is_own(std::uint64_t entry) {
  return (entry & (kPresent | kSwapped)) != 0 && (entry & kFileOrShared) == 0;
}

std::span<std::byte> map_page(int fd, int protection, int flags) {
  void* page = ::mmap(nullptr, page_size(), protection, flags, fd, 0);
  if (page == MAP_FAILED) return {};
  return {static_cast<std::byte*>(page), page_size()};
}

struct Mapped {
  std::span<std::byte> page;
  explicit Mapped(std::span<std::byte> p) : page(p) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (!page.empty()) ::munmap(page.data(), page.size());
  }
  /// Atomic, so that the compiler does not cache the value between calls.
  [[nodiscard]] std::atomic_ref<std::byte> first() const { return std::atomic_ref(page.front()); }
};

/// Tests, on one page, the properties of Linux that private_pages.h describes.
bool kernel_has_the_properties(const PrivatePages& pages) {
  const UniqueFd file(::memfd_create("headrace-try", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(page_size())) != 0) return false;
  const Mapped shared(map_page(file.get(), PROT_READ | PROT_WRITE, MAP_SHARED));
  const Mapped mine(map_page(file.get(), PROT_READ | PROT_WRITE, MAP_PRIVATE));
  if (shared.page.empty() || mine.page.empty()) return false;
  shared.first() = std::byte{1};
  if (mine.first() != std::byte{1} || pages.count(mine.page) != 0) return false;
  shared.first() = std::byte{2};
  if (mine.first() != std::byte{2} || pages.count(mine.page) != 0) return false;
  const auto faults = PrivatePages::faults();
  mine.first() = std::byte{3};
  if (PrivatePages::faults() == faults) return false;
  if (shared.first() != std::byte{2} || pages.count(mine.page) != 1) return false;
  if (pages.drop(mine.page, file.get(), 0) != 1) return false;
  if (mine.first() != std::byte{2} || pages.count(mine.page) != 0) return false;
  PrivatePages::own_all(mine.page);
  shared.first() = std::byte{4};
  return mine.first() == std::byte{2} && pages.count(mine.page) == 1;
}

/// With vm.overcommit_memory=2 a writable mapping is charged as if all of it had been written to, and again
/// at each fork.
bool overcommit_is_forbidden() {
  const UniqueFd policy(::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
  char mode = 0;
  return policy && ::read(policy.get(), &mode, 1) == 1 && mode == '2';
}

}  // namespace

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::optional<PrivatePages> PrivatePages::open() {
  UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!pagemap || overcommit_is_forbidden()) return std::nullopt;
  PrivatePages pages(std::move(pagemap));
  // Not a static variable's initializer: during a concurrent fork, its lock would stay locked in the child.
  enum : std::uint8_t { kUntried, kWorks, kFails };
  static std::atomic<std::uint8_t> tried{kUntried};
  if (tried == kUntried) tried = kernel_has_the_properties(pages) ? kWorks : kFails;
  if (tried == kFails) return std::nullopt;
  return pages;
}

template <class F>
void PrivatePages::own_runs(std::span<const std::byte> range, F found) const {
  constexpr std::size_t kEntry = sizeof(std::uint64_t);
  std::array<std::uint64_t, 512> entries{};
  const std::uint64_t begin = reinterpret_cast<std::uintptr_t>(range.data()) / page_size();
  const std::size_t pages = range.size() / page_size();
  std::size_t run = 0;  // own pages just before `page`
  for (std::size_t page = 0; page < pages;) {
    const std::size_t some = std::min(pages - page, entries.size());
    const auto got =
        ::pread(pagemap_.get(), entries.data(), some * kEntry, static_cast<off_t>((begin + page) * kEntry));
    const bool complete = got == static_cast<ssize_t>(some * kEntry);
    for (std::size_t i = 0; i < some; ++i, ++page) {
      if (!complete || is_own(entries[i])) {
        ++run;
      } else if (run > 0) {
        found(page - run, run);
        run = 0;
      }
    }
  }
  if (run > 0) found(pages - run, run);
}

std::optional<std::uint64_t> PrivatePages::faults() {
  // The kernel counts a fault before the faulting thread continues, and keeps the counts of threads that have
  // ended: mm_account_fault(), getrusage(2).
  rusage used{};
  if (::getrusage(RUSAGE_SELF, &used) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(used.ru_minflt) + static_cast<std::uint64_t>(used.ru_majflt);
}

std::size_t PrivatePages::count(std::span<const std::byte> range) const {
  std::size_t own = 0;
  own_runs(range, [&own](std::size_t, std::size_t pages) { own += pages; });
  return own;
}

void PrivatePages::own_all(std::span<std::byte> range) {
  // Atomic, because other threads may write the byte at the same time. Volatile, because clang would replace
  // an OR with 0 by a load.
  for (std::size_t at = 0; at < range.size(); at += page_size())
    __atomic_fetch_or(reinterpret_cast<volatile std::uint8_t*>(&range[at]), 0, __ATOMIC_RELAXED);
}

std::size_t PrivatePages::drop(std::span<std::byte> range, int fd, std::size_t offset) const {
  std::size_t own = 0;
  bool refused = false;
  own_runs(range, [&](std::size_t first, std::size_t pages) {
    own += pages;
    std::byte* begin = &range[first * page_size()];
    refused |= ::madvise(begin, pages * page_size(), MADV_DONTNEED) != 0 &&
               ::madvise(begin, pages * page_size(), kDontNeedLocked) != 0;
  });
  if (!refused) return own;
  // Memory locked by mlock on Linux before 5.18: map the range again at the same address. With
  // mlockall(MCL_FUTURE) the new pages are private copies from the start: count() finds them, and the next
  // drop() replaces them.
  void* again = ::mmap(range.data(), range.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
                       static_cast<off_t>(offset));
  require(again == range.data(),
          "cannot map a slot in locked memory again: use Linux 5.18 or later, or raise RLIMIT_MEMLOCK");
  return own;
}

}  // namespace headrace::ring
