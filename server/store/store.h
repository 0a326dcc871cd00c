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

/// What lies in a folder, finished or not.
struct Found {
  Meta meta;
  std::uint64_t packed = 0;  ///< samples that are there
  std::uint64_t file_bytes = 0;
};

/// kDatasetInvalid: no LMDB, truncated, damaged, or "is an LMDB, but not one that headrace pack wrote".
Result<Found> look(const std::filesystem::path& folder);
/// The same of one that is open. Reads no more than a few records.
Result<Found> look(const Env& env);

/// The tree is walked once, when it is opened: that finds gaps, and later reads need no LMDB: so they share
/// nothing and cannot meet a damaged page of the tree. 16 bytes of memory per sample.
///
/// Thread safety: const members by any number of threads. Spans live as long as the object.
class Store {
 public:
  enum class Reading : std::uint8_t { kRandom, kInOrder };
  /// Errors of look(); kDatasetInvalid also: not finished ("run the same headrace pack again"), samples
  /// missing, tables that are damaged.
  static Result<std::shared_ptr<const Store>> open(const std::filesystem::path& folder, Reading reading);

  [[nodiscard]] const Meta& meta() const { return meta_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return env_.folder(); }
  [[nodiscard]] std::uint64_t size() const { return records_.size(); }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
  [[nodiscard]] Bytes value(std::uint64_t index) const { return records_[index]; }
  enum class Extent : std::uint8_t {
    kWhole,
    kHeads  ///< heads and name only: one page, mostly
  };
  /// Its bounds checked; see RecordView. Brings its pages into memory first, in one go. kDatasetInvalid.
  [[nodiscard]] Result<RecordView> record(std::uint64_t index, Extent extent = Extent::kWhole) const;
  /// The file was truncated, or its disk failed: what was read may be zeros (WatchedMap).
  [[nodiscard]] std::optional<Error> fault() const { return env_.fault(); }
  /// "sample 7 (folder)", and what is wrong with it.
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
  std::vector<Bytes> lengths_;  // of fields; empty for those that are not ragged
};

}  // namespace headrace::server::store
