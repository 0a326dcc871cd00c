#include "server/mapped/watched_map.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <vector>

#include "clientlib/base/unique_fd.h"

namespace headrace::server::mapped {

/// The signal handler reads it, so it is lock-free and never freed.
struct WatchedMap::Slot {
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<std::uintptr_t> lost{0};  ///< the first address that could not be read; 0: none
  std::atomic<unsigned> pieces{0};      ///< that were replaced
  bool taken = false;                   ///< [lock]
};

struct Slots {
  using Slot = WatchedMap::Slot;
  std::array<Slot, 64> slots;
  std::atomic<Slots*> next{nullptr};

  static Slot& take();
  static void on_bus_error(int signal, siginfo_t* info, void* context);
  static void install_once();
  static void install();
};

namespace {

Slots first_slots;
std::mutex slots_mutex;
struct sigaction previous {};
thread_local constinit UnwatchedFaults* unwatched = nullptr;  // read by the signal handler
const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));

/// 0 if the size cannot be read.
std::uint64_t bytes_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

/// A file that stands in for lost pages; -1: there is none, and they become zeros.
int substitute = -1;
constexpr std::uintptr_t kSubstituteBytes = 1 << 20;
/// So many lost pieces of a mapping get the substitute. Then the rest becomes zeros: the number of mappings
/// of a process is limited.
constexpr unsigned kMostPieces = 4000;

/// Zeros, with the header of an LMDB page without entries every 4 KiB. LMDB may be in the middle of a page
/// that is lost. It would take zeros for a page with 2^31 entries, and read far outside of the mapping.
void make_substitute() {
  constexpr std::size_t kLmdbPage = 4096, kLower = 6, kUpper = 7;  // in units of 16 bits
  constexpr std::uint16_t kHeaderBytes = 16;
  std::vector<std::uint16_t> pages(kSubstituteBytes / sizeof(std::uint16_t));
  for (std::size_t at = 0; at < pages.size(); at += kLmdbPage / sizeof(std::uint16_t))
    pages[at + kLower] = pages[at + kUpper] = kHeaderBytes;
  UniqueFd file(::memfd_create("headrace-lost-pages", MFD_CLOEXEC));
  if (!file || ::write(file.get(), pages.data(), kSubstituteBytes) != ssize_t{kSubstituteBytes}) return;
  substitute = file.release();  // for good: the handler may use it at any time
}

/// Replaces whole pages, in one step for other threads. Calls the system directly, because ThreadSanitizer
/// treats mmap(2) as a write to bytes that other threads read.
bool replace(std::uintptr_t begin, std::uintptr_t end, int file) {
  const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | (file < 0 ? MAP_ANONYMOUS : 0);
  constexpr long kOffset = 0;  // an int would leave the upper half of the argument undefined
  return ::syscall(SYS_mmap, begin, end - begin, PROT_READ, flags, file, kOffset) != -1;
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  ::signal(signal, SIG_DFL);  // the access is repeated, and ends the process
}

}  // namespace

void Slots::on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::uintptr_t page = at / page_bytes * page_bytes;
  for (Slots* some = &first_slots; some != nullptr; some = some->next.load(std::memory_order_acquire)) {
    for (Slot& slot : some->slots) {
      const std::uintptr_t begin = slot.begin.load(), end = slot.end.load();
      if (begin == 0 || at < begin || at >= end) continue;  // 0: free, or being initialized
      // Record it before the page appears: a thread that reads it then finds the record.
      std::uintptr_t none = 0;
      slot.lost.compare_exchange_strong(none, at);
      const bool mapped = (substitute >= 0 && slot.pieces.fetch_add(1) < kMostPieces &&
                           replace(page, std::min(end, page + kSubstituteBytes), substitute)) ||
                          replace(page, end, -1);
      errno = saved_errno;
      if (mapped) return;
    }
  }
  if (unwatched != nullptr && replace(page, page + page_bytes, substitute)) {
    unwatched->any_.store(true, std::memory_order_relaxed);
    errno = saved_errno;
    return;
  }
  pass_on(signal, info, context);
}

void Slots::install_once() {
  static std::once_flag installed;
  std::call_once(installed, install);
}

void Slots::install() {
  make_substitute();
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous);
}

WatchedMap::Slot& Slots::take() {
  install_once();
  const std::scoped_lock lock(slots_mutex);
  for (Slots* some = &first_slots;; some = some->next.load()) {
    for (Slot& slot : some->slots) {
      if (slot.taken) continue;
      slot.taken = true;
      return slot;
    }
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the handler may be walking the list at any time
    if (some->next.load() == nullptr) some->next.store(new Slots);
  }
}

WatchedMap::WatchedMap(std::span<const std::uint8_t> bytes, int fd, std::string path)
    : bytes_(bytes), fd_(fd), file_bytes_(bytes_of(fd)), path_(std::move(path)), slot_(Slots::take()) {
  slot_.lost.store(0);
  slot_.pieces.store(0);
  slot_.begin.store(reinterpret_cast<std::uintptr_t>(bytes.data()));
  slot_.end.store(reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()));
}

WatchedMap::~WatchedMap() {
  slot_.end.store(0);
  slot_.begin.store(0);
  const std::scoped_lock lock(slots_mutex);
  slot_.taken = false;
}

std::optional<Error> WatchedMap::fault() const {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
  std::uintptr_t lost = slot_.lost.load();
  if (lost == 0) {
    const std::uint64_t left = bytes_of(fd_);
    if (left >= file_bytes_) return std::nullopt;
    lost = begin + left;
    slot_.lost.store(lost);
  }
  return Error{ErrorCode::kDatasetInvalid,
               fmt::format("{}: byte {} cannot be read: the file was truncated while in use, or its disk "
                           "failed; restore the file, then restart headrace",
                           path_, lost - begin)};
}

UnwatchedFaults::UnwatchedFaults() {
  Slots::install_once();
  unwatched = this;
}

UnwatchedFaults::~UnwatchedFaults() {
  unwatched = nullptr;
}

std::span<const std::uint8_t> mapping_around(const void* inside) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(inside);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) != 2) continue;
    if (begin <= wanted && wanted < end) return {reinterpret_cast<const std::uint8_t*>(begin), end - begin};
  }
  return {};
}

}  // namespace headrace::server::mapped
