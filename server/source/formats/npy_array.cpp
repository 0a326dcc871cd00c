#include "server/source/formats/npy_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "server/remote/url.h"
#include "server/source/files/archive.h"

namespace headrace::server::source {
namespace {

/// Deflate's largest expansion of one byte.
constexpr std::uint64_t kMostExpansion = 1032;
/// Enough for any header that is accepted.
constexpr std::size_t kHeaderRoom = 4096;

Result<NpyArray> make_array(std::string name, std::string shown, const MappedBytes& file) {
  auto header = parse_npy_header(file.view, shown);
  if (!header) return fail(std::move(header.error()));
  const std::uint64_t have = file.view.size() - header->data_offset;
  if (have != header->data_bytes)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: its header says {} of {} = {} bytes, but {} bytes follow; {}", shown,
                            shape_text(header->shape), name_of(header->dtype), header->data_bytes, have,
                            have < header->data_bytes ? "it is truncated: fetch it again" : "save it again"));
  const MappedBytes values{file.view.subspan(header->data_offset), file.owner, file.map};
  return NpyArray{std::move(name), std::move(shown), std::move(*header), values};
}

/// One pass over an .npz file: a zip file's local headers and what is between them.
class NpzReader {
 public:
  NpzReader(std::string path, MappedBytes file) : path_(std::move(path)), file_(std::move(file)) {}

  Result<void> open();
  /// Sets `name` to the next member's name; false at the end.
  Result<bool> next(std::string& name);
  Result<NpyArray> array(const std::string& name, NpzLoad load);

 private:
  [[nodiscard]] tl::unexpected<Error> refuse(const std::string& what) const {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", path_, what));
  }
  [[nodiscard]] tl::unexpected<Error> damaged() const {
    return refuse(fmt::format("is damaged: {}; save it again with np.savez", why(reader_.get())));
  }
  [[nodiscard]] std::optional<MappedBytes> in_place() const;
  /// Appends up to `most` bytes of the member.
  Result<void> unpack(std::vector<std::uint8_t>& out, std::uint64_t most) const;

  const std::string path_;
  const MappedBytes file_;
  Archive reader_{::archive_read_new()};
  ::archive_entry* entry_ = nullptr;
};

Result<void> NpzReader::open() {
  // The streaming reader uses the local headers, and so knows the offset of a member's bytes.
  ::archive_read_support_format_zip_streamable(reader_.get());
  if (::archive_read_open_memory(reader_.get(), file_.view.data(), file_.view.size()) != ARCHIVE_OK)
    return refuse(
        "is not an .npz file (a zip file of .npy files); name .npy files in `fields`, as in {image: "
        "images.npy}");
  return {};
}

Result<bool> NpzReader::next(std::string& name) {
  const Utf8Names names;
  const int got = ::archive_read_next_header(reader_.get(), &entry_);
  if (got == ARCHIVE_EOF) return false;
  if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return damaged();
  const char* path = ::archive_entry_pathname(entry_);
  if (path == nullptr) return damaged();
  name = path;
  return true;
}

/// The member's bytes in the file, if they are not compressed.
std::optional<MappedBytes> NpzReader::in_place() const {
  const std::string format = ::archive_format_name(reader_.get());
  if (format.find("(uncompressed)") == std::string::npos || ::archive_entry_size_is_set(entry_) == 0)
    return std::nullopt;
  const auto at = static_cast<std::uint64_t>(::archive_filter_bytes(reader_.get(), 0));
  const auto bytes = static_cast<std::uint64_t>(std::max<la_int64_t>(::archive_entry_size(entry_), 0));
  if (at > file_.view.size() || bytes > file_.view.size() - at) return std::nullopt;
  return MappedBytes{file_.view.subspan(at, bytes), file_.owner, file_.map};
}

Result<void> NpzReader::unpack(std::vector<std::uint8_t>& out, std::uint64_t most) const {
  std::size_t have = out.size();
  out.resize(have + most);
  while (most > 0) {
    const la_ssize_t got = ::archive_read_data(reader_.get(), out.data() + have, most);
    if (got < 0) return damaged();
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
    most -= static_cast<std::uint64_t>(got);
  }
  out.resize(have);
  return {};
}

Result<NpyArray> NpzReader::array(const std::string& name, NpzLoad load) {
  const std::string shown = fmt::format("{}, array \"{}\"", path_, name);
  if (::archive_entry_is_encrypted(entry_) != 0)
    return fail(ErrorCode::kDatasetInvalid, shown + ": is encrypted; save it again with np.savez");
  if (const auto bytes = in_place()) return make_array(name, shown, *bytes);
  auto content = std::make_shared<std::vector<std::uint8_t>>();
  if (auto done = unpack(*content, kHeaderRoom); !done) return fail(std::move(done.error()));
  auto header = parse_npy_header(*content, shown);
  if (!header) return fail(std::move(header.error()));
  if (load == NpzLoad::kHeaders) return NpyArray{name, shown, std::move(*header), {}};
  if (header->data_bytes / kMostExpansion > file_.view.size())
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: its header says {} bytes, more than a file of {} can hold; fetch it again",
                            shown, header->data_bytes, file_.view.size()));
  // Asks for one byte more than expected: this detects a longer member and makes libarchive check the
  // checksum.
  const std::uint64_t whole = header->data_offset + header->data_bytes + 1;
  if (whole > content->size()) {
    auto done = unpack(*content, whole - content->size());
    if (!done) return fail(std::move(done.error()));
  }
  const std::span<const std::uint8_t> view(*content);
  return make_array(name, shown, {view, std::move(content)});
}

std::string member_name(const std::string& path) {
  return path.ends_with(".npy") ? path.substr(0, path.size() - 4) : path;
}

}  // namespace

Result<NpyArray> open_npy(const std::filesystem::path& path, const RemotePtr& remote) {
  auto file = map_file(path, remote);
  if (!file) return fail(std::move(file.error()));
  return make_array(std::filesystem::path(remote::name_of(path.string())).stem().string(),
                    remote::shown(path.string()), *file);
}

Result<std::vector<NpyArray>> open_npz(const std::filesystem::path& path,
                                       const std::vector<std::string>& names, NpzLoad load,
                                       const RemotePtr& remote) {
  auto file = map_file(path, remote);
  if (!file) return fail(std::move(file.error()));
  NpzReader reader(remote::shown(path.string()), std::move(*file));
  if (auto opened = reader.open(); !opened) return fail(std::move(opened.error()));
  std::vector<NpyArray> out;
  std::vector<std::string> there;
  std::string member;
  for (;;) {
    const auto more = reader.next(member);
    if (!more) return fail(more.error());
    if (!*more) break;
    const std::string name = member_name(member);
    there.push_back(name);
    if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) continue;
    auto array = reader.array(name, load);
    if (!array) return fail(std::move(array.error()));
    out.push_back(std::move(*array));
  }
  for (const std::string& name : names) {
    if (std::find(there.begin(), there.end(), name) != there.end()) continue;
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: holds no array \"{}\"; it holds {}", remote::shown(path.string()), name,
                            fmt::join(there, ", ")));
  }
  return out;
}

}  // namespace headrace::server::source
