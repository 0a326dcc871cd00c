#include "server/source/files/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "clientlib/ring/segment.h"
#include "clientlib/ring/unique_fd.h"
#include "server/remote/url.h"

namespace headrace::server::source {
namespace {

/// The bytes as an open anonymous file.
Result<ring::UniqueFd> as_file(const std::vector<std::uint8_t>& bytes, const std::string& shown) {
  ring::UniqueFd fd(::memfd_create("headrace-fetched", MFD_CLOEXEC));
  for (std::size_t done = 0; fd && done < bytes.size();) {
    const ssize_t put = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (put <= 0) fd.reset();
    done += static_cast<std::size_t>(std::max<ssize_t>(put, 0));
  }
  if (fd) ::lseek(fd.get(), 0, SEEK_SET);
  if (!fd)
    return fail(ErrorCode::kNotEnoughMemory,
                fmt::format("{}: no memory to unpack it: {}", shown, std::strerror(errno)));
  return fd;
}

}  // namespace

Result<std::vector<std::uint8_t>> fetch_whole(const std::string& url, const RemotePtr& remote) {
  std::vector<std::uint8_t> bytes;
  auto got = remote->fetch(url, ring::memory_headroom().bytes, bytes);
  if (got) return bytes;
  // If the whole set does not fit, that is not a bad sample.
  if (got.error().code == ErrorCode::kBadSample) got.error().code = ErrorCode::kNotEnoughMemory;
  return fail(std::move(got.error()));
}

Result<bool> is_there(const std::filesystem::path& path, const RemotePtr& remote) {
  std::error_code status;
  if (!remote::is_url(path.string())) return std::filesystem::exists(path, status);
  const auto found = remote->find(path.string());
  if (!found) return fail(found.error());
  return found->has_value();
}

Result<std::vector<std::uint8_t>> read_whole(const std::filesystem::path& path, const RemotePtr& remote,
                                             const MostOf& most_of) {
  const auto refuse = [&path](std::string_view what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", remote::shown(path.string()), what));
  };
  ring::UniqueFd fetched;
  if (remote::is_url(path.string())) {
    auto bytes = fetch_whole(path.string(), remote);
    if (!bytes) return bytes;
    const bool packed = bytes->size() > 1 && (*bytes)[0] == 0x1F && (*bytes)[1] == 0x8B;
    if (!packed && bytes->size() > most_of(*bytes))
      return refuse(fmt::format("expected at most {} bytes, found {}", most_of(*bytes), bytes->size()));
    if (!packed) return bytes;
    auto file = as_file(*bytes, remote::shown(path.string()));
    if (!file) return fail(std::move(file.error()));
    fetched = std::move(*file);
  }
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) return refuse("is a folder; name the file");
  // A pipe or a device might never end.
  if (!fetched && std::filesystem::exists(path, status) && !std::filesystem::is_regular_file(path, status))
    return refuse("is not a file");
  errno = 0;
  const std::unique_ptr<gzFile_s, decltype(&::gzclose)> file(
      fetched ? ::gzdopen(fetched.get(), "rb") : ::gzopen(path.c_str(), "rbe"), &::gzclose);
  if (!file)
    return refuse(fmt::format("{}; correct the source's path", std::strerror(errno ? errno : ENOMEM)));
  static_cast<void>(fetched.release());  // gzclose() closes it
  ::gzbuffer(file.get(), 1U << 20);
  std::vector<std::uint8_t> bytes;
  // A vector that grows needs its bytes twice.
  const std::uint64_t room = ring::memory_headroom().bytes / 2;
  std::uint64_t most = 0;
  constexpr std::size_t kLeastStep = std::size_t{64} << 10, kMostStep = std::size_t{4} << 20;
  const auto on_disk = std::filesystem::file_size(path, status);
  // A small file does not need megabytes, which would be cleared first.
  const auto step =
      static_cast<unsigned>(status ? kMostStep : std::clamp<std::uintmax_t>(on_disk, kLeastStep, kMostStep));
  for (;;) {
    const std::size_t have = bytes.size();
    bytes.resize(have + step);
    const int got = ::gzread(file.get(), bytes.data() + have, step);
    bytes.resize(have + static_cast<std::size_t>(std::max(got, 0)));
    if (have == 0) {
      most = most_of(bytes);
      bytes.reserve(std::min({status ? 0 : on_disk, most, room}));
    }
    if (bytes.size() > most) return refuse(fmt::format("expected at most {} bytes, found more", most));
    if (bytes.size() > room)
      return fail(
          ErrorCode::kNotEnoughMemory,
          fmt::format("{}: has more bytes than half of the free memory ({} bytes)", path.string(), room));
    int error = Z_OK;
    const char* why = ::gzerror(file.get(), &error);
    // A truncated gzip stream reads like a complete one, followed by this error.
    if (error == Z_BUF_ERROR) return refuse("is truncated: its gzip stream ends early; fetch it again");
    if (got < 0)
      return refuse(error == Z_ERRNO ? fmt::format("reading failed: {}", std::strerror(errno))
                                     : fmt::format("is damaged: {}; fetch it again", why));
    if (got == 0) return bytes;
  }
}

}  // namespace headrace::server::source
