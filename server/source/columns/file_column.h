// A column of image files below one folder.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "server/source/columns/image_column.h"
#include "server/source/files/file_reader.h"

namespace headrace::server::source {

class FileColumn final : public ImageColumn {
 public:
  /// `fd`: of the root, which messages call `root`.
  FileColumn(SourceField field, std::string root, ring::UniqueFd fd, ReadPolicy policy)
      : field_(std::move(field)),
        root_(std::move(root)),
        root_fd_(std::move(fd)),
        policy_(std::move(policy)) {}
  /// `field`: its name, and whether it is a mask. kDatasetInvalid: no such folder.
  static Result<std::unique_ptr<FileColumn>> open(SourceField field, const std::filesystem::path& root,
                                                  ReadPolicy policy = {});

  /// One more row: a file, relative to the root. 8 bytes and the path's own in memory.
  void add(std::string_view path) override { add_in("", path); }
  /// The same; `folder` and `name` are put together as they are.
  void add_in(std::string_view folder, std::string_view name);
  /// For rows that come from anywhere but the folder itself: calls `wrong`, in the rows' order, for those
  /// that are missing, unreadable or no regular file. Takes the sizes as finish() does.
  void check(const std::function<void(std::uint64_t row, std::string_view problem)>& wrong);
  /// Takes the sizes of the rows that SizeSample says. read() refuses those files of which the size is
  /// another one by then, and takes all others as they are.
  Result<void> finish() override;
  void set_scale(std::int32_t scale) override { field_.scale = scale; }

  [[nodiscard]] int root_fd() const { return root_fd_.get(); }
  [[nodiscard]] const std::string& root() const override { return root_; }

  [[nodiscard]] SourceField field() const override { return field_; }
  [[nodiscard]] std::uint64_t size() const override { return begins_.size(); }
  Result<void> read(std::uint64_t row, Item& out) const override;
  [[nodiscard]] std::string name(std::uint64_t row) const override { return path(row); }
  void add_to(Fingerprint& fingerprint) const override;

 private:
  /// errno; 0: it is no regular file.
  using Refused = std::function<void(std::uint64_t row, int error)>;
  /// Asks for `rows`, which ascend, and keeps the sizes of those in the sample.
  void ask(const std::vector<std::uint64_t>& rows, const Refused& refused);
  [[nodiscard]] const char* path(std::uint64_t row) const { return pool_.data() + begins_.at(row); }
  /// Of its path, the zero byte included.
  [[nodiscard]] std::uint64_t end(std::uint64_t row) const {
    return row + 1 < begins_.size() ? begins_[row + 1] : pool_.size();
  }

  SourceField field_;
  const std::string root_;
  const ring::UniqueFd root_fd_;
  const ReadPolicy policy_;
  std::string pool_;                   ///< paths, each ended by a zero byte
  std::vector<std::uint64_t> begins_;  ///< of each row's path in pool_
  std::vector<std::uint64_t> sizes_;   ///< of the rows in the sample
};

}  // namespace headrace::server::source
