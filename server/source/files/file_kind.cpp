#include "server/source/files/file_kind.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "clientlib/ring/unique_fd.h"

namespace headrace::server::source {
namespace {

using namespace std::string_view_literals;

/// What to give instead.
enum class Instead : std::uint8_t { kClassFolders, kItsFolder, kRenamed, kUnpacked, kParquet, kPacked };

struct Signature {
  std::size_t offset;
  std::string_view bytes;
  const char* name;
  Instead instead;
};

constexpr std::array kSignatures{
    Signature{0, "\xFF\xD8\xFF"sv, "a JPEG image", Instead::kClassFolders},
    Signature{0, "\x89PNG\r\n"sv, "a PNG image", Instead::kClassFolders},
    Signature{0, "GIF8"sv, "a GIF image", Instead::kClassFolders},
    Signature{8, "WEBP"sv, "a WebP image", Instead::kClassFolders},
    Signature{16, "\xDE\xC0\xEF\xBE"sv, "an LMDB database's file", Instead::kItsFolder},
    Signature{0, "\0\0\x08\x01"sv, "an IDX file", Instead::kItsFolder},
    Signature{0, "\0\0\x08\x03"sv, "an IDX file", Instead::kItsFolder},
    Signature{0, "\0\0\x08\x04"sv, "an IDX file", Instead::kItsFolder},
    Signature{257, "ustar"sv, "a tar file", Instead::kRenamed},
    Signature{0, "\x93NUMPY"sv, "a numpy array", Instead::kRenamed},
    Signature{0, "\x1F\x8B"sv, "packed by gzip", Instead::kUnpacked},
    Signature{0, "PK\x03\x04"sv, "a zip file", Instead::kUnpacked},
    Signature{0, "\x28\xB5\x2F\xFD"sv, "packed by zstd", Instead::kUnpacked},
    Signature{0, "BZh"sv, "packed by bzip2", Instead::kUnpacked},
    Signature{0,
              "\xFD"
              "7zXZ"sv,
              "packed by xz", Instead::kUnpacked},
    Signature{0, "\x89HDF"sv, "an HDF5 file", Instead::kPacked},
    Signature{0, "PAR1"sv, "a Parquet file", Instead::kParquet},
    Signature{0, "\x80\x04\x95"sv, "a pickle", Instead::kPacked},
    Signature{0, "\x80\x02"sv, "a pickle", Instead::kPacked},
};

std::string advice(Instead instead, const std::filesystem::path& path) {
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  switch (instead) {
    case Instead::kClassFolders:
      return "give the folder that holds a folder of images per class";
    case Instead::kItsFolder:
      return fmt::format("give its folder: headrace check {}", folder);
    case Instead::kRenamed:
      return "data files are known by their names: call it .tar (WebDataset), .npy or .npz";
    case Instead::kUnpacked:
      return fmt::format(
          "unpack it, or, where its source reads it so (MNIST's .gz), give its folder: headrace check {}",
          folder);
    case Instead::kParquet:
      return fmt::format("pack it first, with Python: python -m headrace.parquet {} OUT", path.string());
    case Instead::kPacked:
      break;
  }
  return "no source reads it; headrace.pack() writes what Python reads into a database for `type: lmdb`";
}

std::string head_of(const std::filesystem::path& path) {
  // Check this first: opening and closing a pipe would end the process that writes to it.
  std::error_code status;
  if (!std::filesystem::is_regular_file(path, status)) return {};
  const ring::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return {};
  std::string head(4096, '\0');
  const ssize_t got = ::pread(fd.get(), head.data(), head.size(), 0);
  head.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return head;
}

}  // namespace

std::string why_no_configuration(const std::filesystem::path& path) {
  const std::string head = head_of(path);
  for (const Signature& kind : kSignatures)
    if (head.size() >= kind.offset + kind.bytes.size() &&
        head.compare(kind.offset, kind.bytes.size(), kind.bytes) == 0)
      return fmt::format("is {}, not a configuration: {}", kind.name, advice(kind.instead, path));
  const bool utf16 = head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF");
  if (utf16 || head.find('\0') == std::string::npos) return {};
  if (path.extension() == ".bin")  // CIFAR's have no mark of their own
    return fmt::format("is binary, not a configuration: {}", advice(Instead::kItsFolder, path));
  return "is binary, not a configuration: give a dataset's folder, or a configuration in YAML";
}

}  // namespace headrace::server::source
