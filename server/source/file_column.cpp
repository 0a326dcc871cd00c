#include "server/source/file_column.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

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

Result<void> FileColumn::add(const std::string& path) {
  struct stat status {};
  if (::fstatat(root_fd_.get(), path.c_str(), &status, 0) != 0)
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}/{}: {}", root_, path, std::strerror(errno)));
  if (!S_ISREG(status.st_mode))
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}/{}: is no regular file", root_, path));
  add(path, static_cast<std::uint64_t>(status.st_size));
  return {};
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
