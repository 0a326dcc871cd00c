#include "clientlib/ring/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <cstring>

#include "clientlib/base/human.h"

namespace headrace::ring {
namespace {

namespace bip = boost::interprocess;
constexpr int kAgainstResizing = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Boost.Interprocess maps anything with a handle: here, a descriptor.
struct Borrowed {
  int fd;
  [[nodiscard]] bip::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
};

Result<bip::mapped_region> map_region(int fd, bip::mode_t mode, std::size_t bytes) {
  try {
    // A private view needs memory only for the pages that are written to.
    const bip::map_options_t options =
        mode == bip::copy_on_write ? bip::map_options_t{MAP_NORESERVE} : bip::default_map_options;
    return bip::mapped_region(Borrowed{fd}, mode, 0, bytes, nullptr, options);
  } catch (const bip::interprocess_exception& error) {
    const std::string what = fmt::format("mapping {} of shared memory: {}", human_bytes(bytes), error.what());
    if (error.get_native_error() != ENOMEM) return fail(ErrorCode::kEnvironment, what);
    const MemoryHeadroom headroom = memory_headroom();
    return fail(ErrorCode::kNotEnoughMemory,
                fmt::format("{}; {} are left ({}): raise that limit, or the one of address space (ulimit -v)",
                            what, human_bytes(headroom.bytes), headroom.limited_by));
  }
}

tl::unexpected<Error> system_failure(const std::string& name, std::string_view step) {
  const int error = errno;
  const char* remedy = "";
  if (error == EFBIG) remedy = "; raise the limit of file sizes (ulimit -f)";
  if (error == EMFILE || error == ENFILE) remedy = "; raise the limit of open files (ulimit -n)";
  return fail(ErrorCode::kEnvironment,
              fmt::format("shared memory '{}': {}: {}{}", name, step, std::strerror(error), remedy));
}

/// Asks for huge pages, if the machine allows them for shared memory. Failures are ignored: posix_fallocate
/// allocates whatever is missing. A huge page at the end may cover more than was asked for.
void wish_for_huge_pages(std::byte* data, std::size_t bytes) {
  if (bytes < kHugePage) return;
  ::madvise(data, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  ::madvise(data, bytes, MADV_POPULATE_WRITE);
#endif
}

/// `more`: for the message.
Result<void> check_room(const std::string& name, std::size_t bytes, const char* more,
                        const MemoryHeadroom& headroom) {
  if (bytes <= headroom.bytes) return {};
  return fail(ErrorCode::kNotEnoughMemory,
              fmt::format("shared memory '{}' needs {}{}, but {} are left ({}); raise that limit, or use "
                          "less memory",
                          name, human_bytes(bytes), more, human_bytes(headroom.bytes), headroom.limited_by));
}

/// Gives the bytes [from, to) memory.
Result<void> fill(const std::string& name, const Segment& segment, std::size_t from, std::size_t to) {
  wish_for_huge_pages(segment.data() + from, to - from);
  int failed = 0;
  do failed = ::posix_fallocate(segment.fd(), static_cast<off_t>(from), static_cast<off_t>(to - from));
  while (failed == EINTR);
  if (failed == 0) return {};
  return fail(ErrorCode::kNotEnoughMemory, fmt::format("shared memory '{}': cannot allocate {}: {}", name,
                                                       human_bytes(to - from), std::strerror(failed)));
}

}  // namespace

Result<void> Segment::allocate(const std::string& name, std::size_t from, std::size_t to) const {
  if (auto room = check_room(name, to - from, " more", mapped_headroom()); !room) return room;
  return fill(name, *this, from, to);
}

Result<Segment> Segment::create(const std::string& name, std::size_t bytes, ClientAccess clients,
                                std::size_t allocated) {
  if (auto room = check_room(name, allocated, "", memory_headroom()); !room) return fail(room.error());
  Segment segment;
  segment.fd_ = UniqueFd(::memfd_create(name.c_str(), MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (!segment.fd_) return system_failure(name, "memfd_create");
  if (::ftruncate(segment.fd(), static_cast<off_t>(bytes)) != 0) return system_failure(name, "ftruncate");
  auto region = map_region(segment.fd(), bip::read_write, bytes);
  if (!region) return fail(region.error());
  segment.region_ = std::move(*region);
  if (auto done = fill(name, segment, 0, allocated); !done) return fail(done.error());
  // Seal after mapping: the seal forbids new writable mappings, but keeps the one above.
  const int seals =
      kAgainstResizing | F_SEAL_SEAL | (clients == ClientAccess::kReadOnly ? F_SEAL_FUTURE_WRITE : 0);
  if (::fcntl(segment.fd(), F_ADD_SEALS, seals) != 0)
    return system_failure(name, "sealing (read-only rings need Linux 5.1)");
  return segment;
}

Result<Segment> Segment::map(UniqueFd fd, Access access, std::size_t min_bytes) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0)
    return fail(ErrorCode::kBadMessage,
                fmt::format("a received descriptor is not a ring segment: {}", std::strerror(errno)));
  if ((seals & kAgainstResizing) != kAgainstResizing)
    return fail(ErrorCode::kBadMessage, "a received segment is not sealed against resizing");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    return fail(ErrorCode::kBadMessage, fmt::format("fstat of a received segment: {}", std::strerror(errno)));
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes == 0 || bytes < min_bytes)
    return fail(ErrorCode::kBadMessage,
                fmt::format("a received segment has {} bytes, expected at least {}", bytes, min_bytes));
  const bip::mode_t mode = access == Access::kReadOnly    ? bip::read_only
                           : access == Access::kReadWrite ? bip::read_write
                                                          : bip::copy_on_write;
  auto region = map_region(fd.get(), mode, bytes);
  if (!region) return fail(region.error());
  Segment segment;
  segment.fd_ = std::move(fd);
  segment.region_ = std::move(*region);
  return segment;
}

bool clients_may_write(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)) == 0;
}

}  // namespace headrace::ring
