// A column of image files below one URL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/remote/remote.h"
#include "server/source/columns/image_column.h"
#include "server/source/files/file_reader.h"

namespace headrace::server::source {

/// Each row is one request for the whole file. If a file's size or ETag is known, read() refuses a changed
/// file; otherwise it accepts any version, but never mixes parts of two. The fingerprint covers the paths and
/// the known sizes of the rows in the SizeSample: if all are known, it equals FileColumn's for the same
/// files.
class UrlColumn final : public ImageColumn {
 public:
  static constexpr std::uint64_t kUnknown = UINT64_MAX;
  /// The most files that check() requests.
  static constexpr std::uint64_t kChecked = 1000;

  UrlColumn(SourceField field, std::string root, std::shared_ptr<const remote::Remote> remote);

  /// Adds a row: a file's name relative to the root, not encoded, or a URL. Takes 24 bytes plus the path in
  /// memory.
  void add(std::string_view path) override { add(path, kUnknown, {}); }
  void add(std::string_view path, std::uint64_t bytes, std::string_view tag);
  /// Reads the sizes of some rows, evenly spread, or of all if they are few; the others stay unknown. Calls
  /// `wrong`, in the rows' order, for those that are missing or unreadable.
  void check(const std::function<void(std::uint64_t row, std::string_view problem)>& wrong);
  Result<void> finish() override;
  void set_scale(std::int32_t scale) override { field_.scale = scale; }

  [[nodiscard]] const std::string& root() const override { return shown_; }
  [[nodiscard]] SourceField field() const override { return field_; }
  [[nodiscard]] std::uint64_t size() const override { return entries_.size(); }
  Result<void> read(std::uint64_t row, Item& out) const override;
  [[nodiscard]] std::string name(std::uint64_t row) const override;
  void add_to(Fingerprint& fingerprint) const override;

 private:
  struct Entry {
    std::uint64_t offset, bytes, tag;  ///< of the path in pool_; of the file; the ETag's hash, 0: unknown
  };
  [[nodiscard]] const char* path(std::uint64_t row) const { return pool_.data() + entries_.at(row).offset; }

  SourceField field_;
  const std::string root_, shown_;
  const std::shared_ptr<const remote::Remote> remote_;
  const std::uint64_t max_bytes_ = ReadPolicy{}.max_bytes;
  std::string pool_;  ///< paths, each ended by a zero byte
  std::vector<Entry> entries_;
};

}  // namespace headrace::server::source
