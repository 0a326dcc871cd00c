#include "server/source/whole_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace headrace::server::source {

Result<std::vector<std::uint8_t>> read_whole(const std::filesystem::path& path, std::uint64_t most) {
  const auto refuse = [&path](std::string_view what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", path.string(), what));
  };
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) return refuse("is a folder; name the file");
  errno = 0;
  const std::unique_ptr<gzFile_s, decltype(&::gzclose)> file(::gzopen(path.c_str(), "rbe"), &::gzclose);
  if (!file)
    return refuse(fmt::format("{}; correct the source's path", std::strerror(errno ? errno : ENOMEM)));
  ::gzbuffer(file.get(), 1U << 20);
  std::vector<std::uint8_t> bytes;
  constexpr std::size_t kStep = std::size_t{4} << 20;
  const auto on_disk = std::filesystem::file_size(path, status);
  bytes.reserve(status ? 0 : std::min<std::uintmax_t>(on_disk, most));
  for (;;) {
    const std::size_t have = bytes.size();
    bytes.resize(have + kStep);
    const int got = ::gzread(file.get(), bytes.data() + have, kStep);
    bytes.resize(have + static_cast<std::size_t>(std::max(got, 0)));
    if (bytes.size() > most) return refuse(fmt::format("holds more than {} bytes", most));
    int error = Z_OK;
    const char* why = ::gzerror(file.get(), &error);
    // A gzip stream that ends early reads like one that ends, with this error.
    if (error == Z_BUF_ERROR) return refuse("is cut: its gzip stream ends early; fetch it again");
    if (got < 0)
      return refuse(error == Z_ERRNO ? fmt::format("reading failed: {}", std::strerror(errno))
                                     : fmt::format("is damaged: {}; fetch it again", why));
    if (got == 0) return bytes;
  }
}

}  // namespace headrace::server::source
