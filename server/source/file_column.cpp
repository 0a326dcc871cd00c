#include "server/source/file_column.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/source/at_once.h"

namespace headrace::server::source {

Result<std::unique_ptr<FileColumn>> FileColumn::open(SourceField field, const std::filesystem::path& root,
                                                     ReadPolicy policy) {
  ring::UniqueFd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd)
    return fail(ErrorCode::kDatasetInvalid, fmt::format("field `{}`: folder {}: {}; correct its path",
                                                        field.name, root.string(), std::strerror(errno)));
  return std::make_unique<FileColumn>(std::move(field), root.string(), std::move(fd), std::move(policy));
}

void FileColumn::add(std::string_view path, std::uint64_t bytes) {
  entries_.push_back({pool_.size(), bytes});
  pool_.append(path).push_back('\0');
}

void FileColumn::measure(const std::function<void(std::uint64_t, std::string_view)>& wrong) {
  // What is wrong waits for its turn: so there is a limit to how much of it there may be at one time.
  constexpr std::uint64_t kBlock = 1024;
  constexpr std::uint64_t kBlocksAtOnce = 256;
  using Wrong = std::pair<std::uint64_t, int>;  // row, errno; 0: no regular file
  for (std::uint64_t begin = 0; begin < entries_.size(); begin += kBlock * kBlocksAtOnce) {
    const std::uint64_t rows = std::min<std::uint64_t>(entries_.size() - begin, kBlock * kBlocksAtOnce);
    std::vector<std::vector<Wrong>> found((rows + kBlock - 1) / kBlock);
    for_each_at_once(found.size(), [&](std::size_t block) {
      const std::uint64_t first = begin + block * kBlock;
      const std::uint64_t end = std::min(first + kBlock, begin + rows);
      for (std::uint64_t row = first; row < end; ++row) {
        struct stat status {};
        if (::fstatat(root_fd_.get(), path(row), &status, 0) != 0)
          found[block].emplace_back(row, errno);
        else if (!S_ISREG(status.st_mode))
          found[block].emplace_back(row, 0);
        entries_[row].bytes = static_cast<std::uint64_t>(status.st_size);
      }
    });
    for (const auto& block : found)
      for (const auto& [row, error] : block)
        wrong(row, fmt::format("{}/{}: {}", root_, path(row),
                               error == 0 ? "is no regular file" : std::strerror(error)));
  }
}

void FileColumn::shrink_to_fit() {
  pool_.shrink_to_fit();
  entries_.shrink_to_fit();
}

Result<void> FileColumn::read(std::uint64_t row, Item& out) const {
  if (auto read = read_file({root_fd_.get(), path(row), root_}, entries_.at(row).bytes, policy_, out.storage);
      !read)
    return read;
  out.bytes = out.storage;
  out.pixels = {};
  return {};
}

void FileColumn::add_to(Fingerprint& fingerprint) const {
  for (std::uint64_t row = 0; row < entries_.size(); ++row)
    fingerprint.add(std::string_view(path(row))).add(entries_[row].bytes);
  fingerprint.add(std::uint64_t{field_.mask}).add(static_cast<std::uint64_t>(field_.scale));
}

}  // namespace headrace::server::source
