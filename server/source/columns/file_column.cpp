#include "server/source/columns/file_column.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "server/source/files/at_once.h"
#include "server/source/files/folder_walk.h"
#include "server/source/files/listed_files.h"
#include "server/source/size_sample.h"

namespace headrace::server::source {
namespace {

/// Files stat'ed in parallel: a network mount's limit is its latency, not the processor.
constexpr std::size_t kStatsAtOnce = 32;
constexpr std::uint64_t kRowsPerTask = 64;
constexpr std::uint64_t kTasksAtOnce = 4096;

std::vector<std::uint64_t> sampled_rows(std::uint64_t count) {
  const SizeSample sample(count);
  std::vector<std::uint64_t> rows;
  for (std::uint64_t i = 0; i < sample.size(); ++i) rows.push_back(sample.row(i));
  return rows;
}

}  // namespace

Result<std::unique_ptr<FileColumn>> FileColumn::open(SourceField field, const std::filesystem::path& root,
                                                     ReadPolicy policy) {
  ring::UniqueFd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd)
    return fail(ErrorCode::kDatasetInvalid, fmt::format("field `{}`: folder {}: {}; correct its path",
                                                        field.name, root.string(), std::strerror(errno)));
  return std::make_unique<FileColumn>(std::move(field), root.string(), std::move(fd), std::move(policy));
}

void FileColumn::add_in(std::string_view folder, std::string_view name) {
  begins_.push_back(pool_.size());
  pool_.append(folder).append(name).push_back('\0');
}

void FileColumn::stat_rows(const std::vector<std::uint64_t>& rows, const Refused& refused) {
  const SizeSample sample(size());
  sizes_.resize(sample.size());
  // Problems are kept until all earlier rows are done, so their number is bounded.
  using Wrong = std::pair<std::uint64_t, int>;
  for (std::uint64_t begin = 0; begin < rows.size(); begin += kRowsPerTask * kTasksAtOnce) {
    const std::uint64_t count = std::min<std::uint64_t>(rows.size() - begin, kRowsPerTask * kTasksAtOnce);
    std::vector<std::vector<Wrong>> found((count + kRowsPerTask - 1) / kRowsPerTask);
    const auto stat_block = [&](std::size_t block) {
      const std::uint64_t first = begin + block * kRowsPerTask;
      const std::uint64_t end = std::min(first + kRowsPerTask, begin + count);
      for (std::uint64_t i = first; i < end; ++i) {
        const std::uint64_t row = rows[i];
        struct stat status {};
        if (::fstatat(root_fd_.get(), path(row), &status, 0) != 0)
          found[block].emplace_back(row, errno);
        else if (!S_ISREG(status.st_mode))
          found[block].emplace_back(row, 0);
        if (const auto index = sample.index_of(row))
          sizes_[*index] = static_cast<std::uint64_t>(status.st_size);
      }
    };
    for_each_at_once(found.size(), stat_block, kStatsAtOnce);
    for (const auto& block : found)
      for (const auto& [row, error] : block) refused(row, error);
  }
}

void FileColumn::check(const std::function<void(std::uint64_t, std::string_view)>& wrong) {
  const auto sampled = sampled_rows(size());
  std::vector<std::uint64_t> rows;
  if (sampled.size() < size()) {  // else all rows are read below
    const auto left = not_listed(root_fd_.get(), size(), [this](std::uint64_t row) {
      return std::string_view(path(row), end(row) - begins_[row] - 1);
    });
    std::set_union(sampled.begin(), sampled.end(), left.begin(), left.end(), std::back_inserter(rows));
  }
  stat_rows(rows.empty() ? sampled : rows, [&](std::uint64_t row, int error) {
    wrong(row, fmt::format("{}: {}", (std::filesystem::path(root_) / path(row)).string(),
                           error == 0 ? "is not a regular file" : std::strerror(error)));
  });
}

Result<void> FileColumn::finish() {
  pool_.shrink_to_fit();
  begins_.shrink_to_fit();
  std::optional<Error> first;
  if (sizes_.empty())
    stat_rows(sampled_rows(size()), [&](std::uint64_t row, int error) {
      const std::string what = fmt::format("file {}/{}", root_, path(row));
      if (first) return;
      first = error != 0 ? scan_error(what, error)
                         : Error{ErrorCode::kDatasetInvalid, what + ": is no longer a regular file"};
    });
  if (first) return fail(std::move(*first));
  return {};
}

Result<void> FileColumn::read(std::uint64_t row, Item& out) const {
  const auto index = SizeSample(size()).index_of(row);
  const auto expected = index ? std::optional(sizes_.at(*index)) : std::nullopt;
  if (auto read = read_file({root_fd_.get(), path(row), root_}, expected, policy_, out.storage); !read)
    return read;
  out.bytes = out.storage;
  out.pixels = {};
  return {};
}

void FileColumn::add_to(Fingerprint& fingerprint) const {
  // Paths are stored end to end, each ended by a zero byte, so all those between two sizes are hashed at
  // once.
  const auto paths = [&](std::uint64_t begin, std::uint64_t end) {
    fingerprint.add(std::span(reinterpret_cast<const std::uint8_t*>(pool_.data()) + begin, end - begin));
  };
  const SizeSample sample(size());
  std::uint64_t done = 0;
  for (std::uint64_t i = 0; i < sample.size(); ++i) {
    const std::uint64_t next = end(sample.row(i));
    paths(done, next);
    fingerprint.add(sizes_.at(i));
    done = next;
  }
  paths(done, pool_.size());
  fingerprint.add(std::uint64_t{field_.mask}).add(static_cast<std::uint64_t>(field_.scale));
}

}  // namespace headrace::server::source
