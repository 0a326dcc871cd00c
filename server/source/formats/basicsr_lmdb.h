// Reads databases written by BasicSR: an LMDB of PNG or JPEG files, keyed by their names without extension. A
// meta_info.txt beside its data.mdb lists them: "0001_s001.png (480,480,3) 1" gives the name, height, width,
// channels and compression level.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/decode/decoder.h"
#include "server/source/columns/image_column.h"
#include "server/store/lmdb_env.h"

namespace headrace::server::source {

class BasicSrColumn final : public ImageColumn {
 public:
  struct Listed {
    std::string path;        ///< the name with its extension
    decode::ImageSize size;  ///< as the list says
  };

  /// Whether the folder holds such a database; open() may still refuse it.
  static bool is_one(const std::filesystem::path& folder);
  /// kDatasetInvalid: not an LMDB, truncated, written by another program (with a remedy), no list, wrong
  /// lines and names that are not in the database (each with file:line, the first ten).
  static Result<std::unique_ptr<BasicSrColumn>> open(SourceField field, const std::filesystem::path& folder);

  /// In the list's order. Empty after finish().
  [[nodiscard]] const std::vector<Listed>& listed() const { return listed_; }
  /// The number of entries of the database that the list does not name.
  [[nodiscard]] std::uint64_t unlisted() const {
    return entries_.size() - std::min(entries_.size(), listed_.size());
  }
  /// Afterwards it takes 24 bytes per row, plus its path. kDatasetInvalid: the file was truncated since
  /// open().
  Result<void> finish() override;

  [[nodiscard]] const std::string& root() const override { return root_; }
  /// `path`: an element of listed(). Call it before finish().
  void add(std::string_view path) override;
  void set_scale(std::int32_t scale) override { field_.scale = scale; }

  [[nodiscard]] SourceField field() const override { return field_; }
  [[nodiscard]] std::uint64_t size() const override { return rows_.size(); }
  /// The bytes are in the mapped file: nothing is copied.
  Result<void> read(std::uint64_t row, Item& out) const override;
  [[nodiscard]] std::string name(std::uint64_t row) const override;
  /// The same as for these files in a folder.
  void add_to(Fingerprint& fingerprint) const override;
  [[nodiscard]] std::optional<Error> fault() const override { return env_.fault(); }

 private:
  struct Entry {
    std::string_view key;
    store::Bytes value;
  };
  struct Row {
    std::uint64_t path = 0;  ///< in pool_
    store::Bytes value;
  };

  BasicSrColumn(SourceField field, std::string root, store::Env env)
      : field_(std::move(field)), root_(std::move(root)), env_(std::move(env)) {}
  Result<void> walk();
  Result<void> read_list();
  [[nodiscard]] const Entry* find(std::string_view path) const;

  SourceField field_;
  const std::string root_;
  const store::Env env_;
  std::vector<Entry> entries_;  ///< everything in the database, by key
  std::vector<Listed> listed_;
  std::string pool_;  ///< paths of rows, each ended by a zero byte
  std::vector<Row> rows_;
};

}  // namespace headrace::server::source
