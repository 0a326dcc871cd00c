#include "clientlib/ring/private_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
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
constexpr std::uint64_t kOfFile = std::uint64_t{1} << 61;

bool is_own(std::uint64_t entry) {
  return (entry & (kPresent | kSwapped)) != 0 && (entry & kOfFile) == 0;
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
  /// A real access each time.
  [[nodiscard]] std::atomic_ref<std::byte> first() const { return std::atomic_ref(page.front()); }
};

/// What the header says of Linux, tried on one page.
bool kernel_keeps_to_it(const PrivatePages& pages) {
  const UniqueFd file(::memfd_create("headrace-try", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(page_size())) != 0) return false;
  const Mapped shared(map_page(file.get(), PROT_READ | PROT_WRITE, MAP_SHARED));
  const Mapped mine(map_page(file.get(), PROT_READ | PROT_WRITE, MAP_PRIVATE));
  if (shared.page.empty() || mine.page.empty()) return false;
  shared.first() = std::byte{1};
  if (mine.first() != std::byte{1} || pages.count(mine.page) != 0) return false;
  shared.first() = std::byte{2};
  if (mine.first() != std::byte{2} || pages.count(mine.page) != 0) return false;
  mine.first() = std::byte{3};
  if (shared.first() != std::byte{2} || pages.count(mine.page) != 1) return false;
  if (pages.drop(mine.page, file.get(), 0) != 1) return false;
  if (mine.first() != std::byte{2} || pages.count(mine.page) != 0) return false;
  PrivatePages::take(mine.page);
  shared.first() = std::byte{4};
  return mine.first() == std::byte{2} && pages.count(mine.page) == 1;
}

}  // namespace

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::optional<PrivatePages> PrivatePages::open() {
  UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!pagemap) return std::nullopt;
  PrivatePages pages(std::move(pagemap));
  static const bool works = kernel_keeps_to_it(pages);
  if (!works) return std::nullopt;
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
    const bool told = got == static_cast<ssize_t>(some * kEntry);
    for (std::size_t i = 0; i < some; ++i, ++page) {
      if (!told || is_own(entries[i])) {
        ++run;
      } else if (run > 0) {
        found(page - run, run);
        run = 0;
      }
    }
  }
  if (run > 0) found(pages - run, run);
}

std::size_t PrivatePages::count(std::span<const std::byte> range) const {
  std::size_t own = 0;
  own_runs(range, [&own](std::size_t, std::size_t pages) { own += pages; });
  return own;
}

void PrivatePages::take(std::span<std::byte> range) {
  // An atomic write of what is there: others may write the same byte now.
  for (std::size_t at = 0; at < range.size(); at += page_size())
    std::atomic_ref(reinterpret_cast<std::uint8_t&>(range[at])).fetch_or(0, std::memory_order_relaxed);
}

std::size_t PrivatePages::drop(std::span<std::byte> range, int fd, std::size_t offset) const {
  std::size_t own = 0;
  bool locked = false;
  own_runs(range, [&](std::size_t first, std::size_t pages) {
    own += pages;
    locked |= ::madvise(&range[first * page_size()], pages * page_size(), MADV_DONTNEED) != 0;
  });
  if (!locked) return own;
  // In memory by mlock: a new mapping in the same place. With mlockall(MCL_FUTURE) its pages are copies from
  // the start; count() tells, and this makes them anew.
  void* again = ::mmap(range.data(), range.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
                       static_cast<off_t>(offset));
  require(again == range.data(), "the kernel refused to map a slot again");
  return own;
}

}  // namespace headrace::ring
