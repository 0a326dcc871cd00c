#include "server/source/shards/tar_reader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "server/source/files/archive.h"

namespace headrace::server::source {
namespace {

constexpr std::uint64_t kTarBlock = 512;
/// Least and most bytes of one read: headers are between images, and images above kSkip are skipped, so bytes
/// read beyond a header are wasted.
constexpr std::size_t kLeastRead = std::size_t{4} << 10;
constexpr std::size_t kMostRead = std::size_t{64} << 10;
constexpr std::uint64_t kSkip = std::uint64_t{16} << 10;
/// Writers pad the last record with zeros; this is the largest record that tar writes by a common option.
constexpr std::uint64_t kLongestPadding = std::uint64_t{1} << 20;

}  // namespace

struct TarReader::State {
  ReadAt read_at;
  std::uint64_t file_bytes = 0;
  std::string shown;
  std::uint64_t position = 0;  // offset that libarchive reads next
  std::size_t held = 0;        // bytes of `buffer`, which end there
  std::optional<Error> read_error;
  std::uint64_t end = 0;    // where the next header must be; 0: not known
  std::uint64_t bytes = 0;  // of the member that next() returned
  std::size_t next_read = kLeastRead;
  std::array<std::uint8_t, kMostRead> buffer{};
  Archive reader;

  static la_ssize_t read(::archive* reader, void* self, const void** out) {
    auto& state = *static_cast<State*>(self);
    Result<std::size_t> got = 0;
    try {
      got = state.read_at(state.position, std::span(state.buffer).first(state.next_read));
    } catch (const std::bad_alloc&) {  // libarchive is C: no exception may pass through it
      got = fail(ErrorCode::kNotEnoughMemory, state.shown + ": no memory to read it");
    }
    if (!got) {
      state.read_error = std::move(got.error());
      ::archive_set_error(reader, EIO, "%s", std::strerror(EIO));
      return ARCHIVE_FATAL;
    }
    state.position += *got;
    state.held = *got;
    state.next_read = std::min(state.next_read * 2, kMostRead);
    *out = state.buffer.data();
    return static_cast<la_ssize_t>(*got);
  }

  static la_int64_t skip(::archive*, void* self, la_int64_t request) {
    auto& state = *static_cast<State*>(self);
    const std::uint64_t left = state.file_bytes - std::min(state.position, state.file_bytes);
    const auto step = std::min(static_cast<std::uint64_t>(request), left);
    state.position += step;
    state.held = 0;
    if (step >= kSkip) state.next_read = kLeastRead;
    return static_cast<la_int64_t>(step);
  }

  [[nodiscard]] std::uint64_t header() const {
    return static_cast<std::uint64_t>(std::max<la_int64_t>(::archive_read_header_position(reader.get()), 0));
  }
  /// Whether the header before `data` is GNU tar's and has the size of a sparse member: libarchive reports it
  /// also for members of other types.
  [[nodiscard]] bool has_sparse_size(std::uint64_t data) const {
    constexpr std::size_t kMagic = 257, kRealSize = 483;
    const std::uint64_t begin = position - held;
    if (data < begin + kTarBlock || data > position) return false;
    const std::uint8_t* header = buffer.data() + (data - kTarBlock - begin);
    return std::memcmp(header + kMagic, "ustar  ", 7) == 0 && header[kRealSize] != 0;
  }
  [[nodiscard]] tl::unexpected<Error> refuse(const std::string& what) const {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", shown, what));
  }
  [[nodiscard]] tl::unexpected<Error> damaged() const {
    if (read_error) return tl::make_unexpected(*read_error);
    return refuse(fmt::format("is damaged or truncated at byte {} of {}: {}; fetch it again",
                              ::archive_filter_bytes(reader.get(), 0), file_bytes, why(reader.get())));
  }
  [[nodiscard]] Result<void> see_end() const;
};

// libarchive accepts the end of the file as the end of the archive, and ends at the first block of zeros:
// both could hide samples.
Result<void> TarReader::State::see_end() const {
  const std::uint64_t at = header();
  if (file_bytes < at + kTarBlock)
    return refuse(
        fmt::format("ends at byte {} without the blocks of zeros that close a tar archive: it is truncated; "
                    "fetch it again",
                    file_bytes));
  std::array<std::uint8_t, 4096> block{};
  for (std::uint64_t from = at; from < std::min(file_bytes, at + kLongestPadding);) {
    const auto got = read_at(from, block);
    if (!got) return fail(got.error());
    if (*got == 0) break;
    const auto* last = block.begin() + *got;
    const auto* stray = std::find_if(block.cbegin(), last, [](std::uint8_t byte) { return byte != 0; });
    if (stray != last)
      return refuse(
          fmt::format("has data after the end of its archive, at byte {}: join tar files with `tar -A`, not "
                      "with cat, or name them one by one",
                      from + static_cast<std::uint64_t>(stray - block.cbegin())));
    from += *got;
  }
  return {};
}

TarReader::TarReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TarReader::TarReader(TarReader&&) noexcept = default;
TarReader& TarReader::operator=(TarReader&&) noexcept = default;
TarReader::~TarReader() = default;

Result<TarReader> TarReader::open(int fd, std::uint64_t file_bytes, const std::string& shown) {
  const auto read = [fd, shown](std::uint64_t offset, std::span<std::uint8_t> out) -> Result<std::size_t> {
    ssize_t got = 0;
    do {
      got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    } while (got < 0 && errno == EINTR);
    if (got >= 0) return static_cast<std::size_t>(got);
    return fail(ErrorCode::kTransientIo,
                fmt::format("{}: reading at byte {} failed: {}", shown, offset, std::strerror(errno)));
  };
  return open(read, file_bytes, shown);
}

Result<TarReader> TarReader::open(ReadAt read, std::uint64_t file_bytes, const std::string& shown) {
  auto state = std::make_unique<State>();
  state->read_at = std::move(read);
  state->file_bytes = file_bytes;
  state->shown = shown;
  if (file_bytes == 0) return state->refuse("is empty; fetch it again");
  state->reader.reset(::archive_read_new());
  ::archive* reader = state->reader.get();
  ::archive_read_support_format_tar(reader);
  // Only to report them. Not all filters: some run programs.
  ::archive_read_support_filter_gzip(reader);
  ::archive_read_support_filter_bzip2(reader);
  ::archive_read_support_filter_xz(reader);
  ::archive_read_support_filter_zstd(reader);
  ::archive_read_support_filter_lz4(reader);
  ::archive_read_set_read_callback(reader, &State::read);
  ::archive_read_set_skip_callback(reader, &State::skip);
  ::archive_read_set_callback_data(reader, state.get());
  const int opened = ::archive_read_open1(reader);
  if (::archive_filter_code(reader, 0) > ARCHIVE_FILTER_NONE)
    return state->refuse(fmt::format("is compressed ({}), so no sample can be read by itself; unpack it",
                                     ::archive_filter_name(reader, 0)));
  if (opened != ARCHIVE_OK && !state->read_error)
    return state->refuse("is not a tar file; fetch it again, or correct the source's `path`");
  if (opened != ARCHIVE_OK) return state->damaged();
  return TarReader(std::move(state));
}

Result<bool> TarReader::next(TarMember& member) {
  const Utf8Names names;
  State& state = *state_;
  ::archive* reader = state.reader.get();
  ::archive_entry* entry = nullptr;
  const int got = ::archive_read_next_header(reader, &entry);
  if (got == ARCHIVE_EOF) {
    if (auto whole = state.see_end(); !whole) return fail(std::move(whole.error()));
    return false;
  }
  // ARCHIVE_WARN: attributes that are not used here.
  if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return state.damaged();
  if (state.end != 0 && state.end != state.header())
    return state.refuse(fmt::format("has a header at byte {} instead of {}; write it again with GNU tar",
                                    state.header(), state.end));
  const char* name = ::archive_entry_pathname(entry);
  if (name == nullptr)
    return state.refuse(fmt::format("has a member without a name at byte {}", state.header()));
  member.name = name;
  member.file = ::archive_entry_filetype(entry) == AE_IFREG && ::archive_entry_hardlink(entry) == nullptr;
  member.offset = static_cast<std::uint64_t>(::archive_filter_bytes(reader, 0));
  member.bytes = static_cast<std::uint64_t>(std::max<la_int64_t>(::archive_entry_size(entry), 0));
  state.end = 0;
  state.bytes = member.bytes;
  if (!member.file) return true;
  if (::archive_entry_sparse_count(entry) > 0 || state.has_sparse_size(member.offset))
    return state.refuse(
        fmt::format("\"{}\" is a sparse member; write it again without tar's --sparse", name));
  if (member.offset > state.file_bytes || member.bytes > state.file_bytes - member.offset)
    return state.refuse(
        fmt::format("is truncated: \"{}\" begins at byte {} and has {} bytes, the file ends at {}; "
                    "fetch it again",
                    name, member.offset, member.bytes, state.file_bytes));
  state.end = (member.offset + member.bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
  return true;
}

Result<std::string> TarReader::content() {
  std::string out;
  std::array<char, 4096> part{};
  for (;;) {
    const la_ssize_t got = ::archive_read_data(state_->reader.get(), part.data(), part.size());
    if (got < 0) return state_->damaged();
    // libarchive also fills the holes that a damaged GNU header describes: up to 2^63 bytes of zeros.
    if (static_cast<std::uint64_t>(got) > state_->bytes - out.size() ||
        (got == 0 && out.size() != state_->bytes))
      return state_->refuse(
          fmt::format("has a damaged header at byte {}: its content has not the {} bytes of "
                      "its size; fetch it again",
                      state_->header(), state_->bytes));
    if (got == 0) return out;
    out.append(part.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace headrace::server::source
