// Owners for LMDB's environments, transactions and cursors, and its errors with a remedy.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "headrace/error.h"
#include "server/mapped/watched_map.h"

namespace headrace::server::store {

using Bytes = std::span<const std::uint8_t>;

inline Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Brings mapped bytes into memory with one call, if the kernel can do so (5.14 and later).
void populate(Bytes bytes);

/// Thrown if LMDB finds that a tree contradicts itself, which happens once its file is truncated. LMDB would
/// abort the process.
struct TreeFault {};

template <class Call>
int without_abort(const Call& call) {
  try {
    return call();
  } catch (const TreeFault&) {
    return MDB_CORRUPTED;
  }
}

/// kDatasetInvalid for faults of the database, kEnvironment for those of the machine.
Error lmdb_error(int code, const std::filesystem::path& folder, std::string_view doing);

/// One writer at a time, and no reader that needs protection from it: see Writer. Therefore LMDB's lock file
/// is never created, and read-only media can be read.
class Env {
 public:
  enum class Access : std::uint8_t {
    kRandom,      ///< reads without read-ahead
    kSequential,  ///< reads from one end to the other
    kWrite
  };
  /// `map_bytes`: 0 for the size that the database states. kDatasetInvalid: the file was truncated, or its
  /// tree is damaged (tree_check.h).
  static Result<Env> open(const std::filesystem::path& folder, Access access, std::uint64_t map_bytes = 0);
  /// Skips the tree check and fault(). Takes no lock, so a forked child can call it.
  static Result<Env> open_unchecked(const std::filesystem::path& folder, Access access,
                                    std::uint64_t map_bytes = 0);

  /// No transaction may be open.
  Result<void> resize_map(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t map_bytes() const;
  /// All records by the last commit. REQUIRES: no other process writes; readers use Txn::entries().
  [[nodiscard]] std::uint64_t entries() const;
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
  /// Whether these bytes are within the mapped file. REQUIRES: opened for reading.
  [[nodiscard]] bool holds(Bytes bytes) const;
  /// See WatchedMap. REQUIRES: opened for reading.
  [[nodiscard]] std::optional<Error> fault() const { return map_ ? map_->fault() : std::nullopt; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] MDB_env* get() const { return env_.get(); }

 private:
  struct Close {
    void operator()(MDB_env* env) const { ::mdb_env_close(env); }
  };
  /// Finds the map's address, which LMDB does not expose.
  Result<void> find_map();
  void watch();

  std::unique_ptr<MDB_env, Close> env_;
  std::filesystem::path folder_;
  std::uint64_t file_bytes_ = 0;
  Bytes mapped_;                                   ///< empty: opened for writing, or no entries
  std::unique_ptr<const mapped::WatchedMap> map_;  ///< null: as above, or unchecked
};

/// Is rolled back unless committed. Its Env must outlive it.
class Txn {
 public:
  static Result<Txn> begin(const Env& env, bool write);

  /// nullopt: there is no such key. The bytes are valid until the transaction ends; in a read transaction
  /// over a database that no process writes, as long as the Env.
  [[nodiscard]] Result<std::optional<Bytes>> get(Bytes key) const;
  /// Returns LMDB's own code, because callers handle some of them.
  int put(Bytes key, Bytes value, unsigned flags = 0);
  int remove(Bytes key);
  int commit();
  [[nodiscard]] Error error(int code, std::string_view doing) const {
    return lmdb_error(code, *folder_, doing);
  }

  /// Calls `use(key, value)` for each entry in order until it returns false.
  template <class F>
  Result<void> each(F use) const;
  [[nodiscard]] Result<std::optional<Bytes>> last_key() const;
  /// The number of all records.
  [[nodiscard]] std::uint64_t entries() const;

 private:
  struct Abort {
    void operator()(MDB_txn* txn) const { ::mdb_txn_abort(txn); }
  };
  struct CloseCursor {
    void operator()(MDB_cursor* cursor) const { ::mdb_cursor_close(cursor); }
  };
  using Cursor = std::unique_ptr<MDB_cursor, CloseCursor>;
  [[nodiscard]] Result<Cursor> cursor() const;
  static Bytes span(const MDB_val& value) {
    return {static_cast<const std::uint8_t*>(value.mv_data), value.mv_size};
  }

  std::unique_ptr<MDB_txn, Abort> txn_;
  MDB_dbi dbi_ = 0;
  const std::filesystem::path* folder_ = nullptr;
};

template <class F>
Result<void> Txn::each(F use) const {
  const auto at = cursor();
  if (!at) return fail(at.error());
  MDB_val key{}, value{};
  const auto go = [&](MDB_cursor_op where) {
    return without_abort([&] { return ::mdb_cursor_get(at->get(), &key, &value, where); });
  };
  int code = go(MDB_FIRST);
  while (code == MDB_SUCCESS && use(span(key), span(value))) code = go(MDB_NEXT);
  if (code != MDB_SUCCESS && code != MDB_NOTFOUND) return fail(error(code, "walked through"));
  return {};
}

}  // namespace headrace::server::store
