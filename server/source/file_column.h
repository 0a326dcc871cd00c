// A column of image files below one folder.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "server/source/file_reader.h"
#include "server/source/image_column.h"

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

  /// One more row: a file, relative to the root, and its size. 16 bytes and the path's own in memory.
  void add(std::string_view path, std::uint64_t bytes) override;
  /// Sizes of all rows as the file system says them, several at a time. Calls `wrong`, in the rows' order,
  /// for those that are missing, unreadable or no regular file.
  void measure(const std::function<void(std::uint64_t row, std::string_view problem)>& wrong);
  void shrink_to_fit();
  void set_scale(std::int32_t scale) override { field_.scale = scale; }

  [[nodiscard]] int root_fd() const { return root_fd_.get(); }
  [[nodiscard]] const std::string& root() const override { return root_; }

  [[nodiscard]] SourceField field() const override { return field_; }
  [[nodiscard]] std::uint64_t size() const override { return entries_.size(); }
  Result<void> read(std::uint64_t row, Item& out) const override;
  [[nodiscard]] std::string name(std::uint64_t row) const override { return path(row); }
  void add_to(Fingerprint& fingerprint) const override;

 private:
  struct Entry {
    std::uint64_t offset, bytes;  ///< of the path in pool_, of the file
  };
  [[nodiscard]] const char* path(std::uint64_t row) const { return pool_.data() + entries_.at(row).offset; }

  SourceField field_;
  const std::string root_;
  const ring::UniqueFd root_fd_;
  const ReadPolicy policy_;
  std::string pool_;  ///< paths, each ended by a zero byte
  std::vector<Entry> entries_;
};

}  // namespace headrace::server::source
