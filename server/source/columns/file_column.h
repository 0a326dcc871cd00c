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
  /// `fd`: the root's; messages call it `root`.
  FileColumn(SourceField field, std::string root, ring::UniqueFd fd, ReadPolicy policy)
      : field_(std::move(field)),
        root_(std::move(root)),
        root_fd_(std::move(fd)),
        policy_(std::move(policy)) {}
  /// `field`: its name, and whether it is a mask. kDatasetInvalid: no such folder.
  static Result<std::unique_ptr<FileColumn>> open(SourceField field, const std::filesystem::path& root,
                                                  ReadPolicy policy = {});

  /// Adds a row: a file, relative to the root. Takes 8 bytes plus the path in memory.
  void add(std::string_view path) override { add_in("", path); }
  /// The same, for the path `folder` + `name`.
  void add_in(std::string_view folder, std::string_view name);
  /// For rows that were not listed from the folder itself: calls `wrong`, in the rows' order, for files that
  /// are missing, unreadable or not regular. Reads the sizes, as finish() does.
  void check(const std::function<void(std::uint64_t row, std::string_view problem)>& wrong);
  /// Reads the sizes of the rows in the SizeSample. read() then refuses those files if their size has
  /// changed, and accepts any size of the others.
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
  /// errno; 0: it is not a regular file.
  using Refused = std::function<void(std::uint64_t row, int error)>;
  /// Stats `rows`, which ascend, and keeps the sizes of those in the sample.
  void stat_rows(const std::vector<std::uint64_t>& rows, const Refused& refused);
  [[nodiscard]] const char* path(std::uint64_t row) const { return pool_.data() + begins_.at(row); }
  /// The end of the row's path, including the zero byte.
  [[nodiscard]] std::uint64_t end(std::uint64_t row) const {
    return row + 1 < begins_.size() ? begins_[row + 1] : pool_.size();
  }

  SourceField field_;
  const std::string root_;
  const ring::UniqueFd root_fd_;
  const ReadPolicy policy_;
  std::string pool_;                   ///< paths, each ended by a zero byte
  std::vector<std::uint64_t> begins_;  ///< start of each row's path in pool_
  std::vector<std::uint64_t> sizes_;   ///< of the rows in the sample
};

}  // namespace headrace::server::source
