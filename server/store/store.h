// A packed database, open for reading.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/store/lmdb_env.h"
#include "server/store/meta.h"
#include "server/store/record.h"

namespace headrace::server::store {

/// The content of a folder, complete or not.
struct Found {
  Meta meta;
  std::uint64_t packed = 0;  ///< samples packed so far
  std::uint64_t file_bytes = 0;
};

/// kDatasetInvalid: no LMDB, truncated, damaged, or not written by headrace pack.
Result<Found> inspect(const std::filesystem::path& folder);
/// The same for an open one. Reads only a few records.
Result<Found> inspect(const Env& env);

/// Opening walks the tree once, which finds gaps. Later reads do not use LMDB, so they share nothing and
/// cannot meet a damaged page of the tree. Takes 16 bytes of memory per sample.
///
/// Thread safety: any number of threads may call const members. Spans are valid as long as the object.
class Store {
 public:
  enum class Reading : std::uint8_t { kRandom, kInOrder };
  /// inspect()'s errors; also kDatasetInvalid: not complete ("run the same headrace pack again"), samples
  /// missing, damaged tables.
  static Result<std::shared_ptr<const Store>> open(const std::filesystem::path& folder, Reading reading);

  [[nodiscard]] const Meta& meta() const { return meta_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return env_.folder(); }
  [[nodiscard]] std::uint64_t size() const { return records_.size(); }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
  [[nodiscard]] Bytes value(std::uint64_t index) const { return records_[index]; }
  enum class Extent : std::uint8_t {
    kWhole,
    kHeads  ///< heads and name only: usually one page
  };
  /// With checked bounds; see RecordView. Brings its pages into memory first, with one call. kDatasetInvalid.
  [[nodiscard]] Result<RecordView> record(std::uint64_t index, Extent extent = Extent::kWhole) const;
  /// The file was truncated, or its disk failed: data that was read may be wrong (WatchedMap).
  [[nodiscard]] std::optional<Error> fault() const { return env_.fault(); }
  /// "sample 7 (folder)", followed by what is wrong with it.
  [[nodiscard]] Error damaged(std::uint64_t index, const char* what) const;

  [[nodiscard]] std::int64_t label(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const;
  /// Source::most_values.
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const;

 private:
  Result<void> load();
  Result<void> read_tables(const Txn& txn);
  Result<void> find_records(const Txn& txn);

  Env env_;
  Meta meta_;
  std::uint64_t file_bytes_ = 0;
  std::vector<Bytes> records_;
  Bytes labels_, wholes_;
  std::vector<Bytes> lengths_;  // of each field; empty for fields that are not ragged
};

}  // namespace headrace::server::store
