// Writes a packed database, sample after sample, so that a kill at any moment loses little and a later run
// continues.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"
#include "server/store/lmdb_env.h"
#include "server/store/meta.h"

namespace headrace::server::store {

struct WriterOptions {
  std::uint64_t transaction_bytes = std::uint64_t{64} << 20;
  std::chrono::milliseconds transaction_time{1000};
  std::uint64_t first_map_bytes = std::uint64_t{1} << 30;  ///< doubled whenever it is full
};

/// A record's contribution to the set's statistics.
struct RecordFacts {
  std::uint64_t raw_bytes = 0;         ///< as read from the source
  std::string undecodable;             ///< why it is undecodable; empty: it is not
  std::vector<std::uint64_t> lengths;  ///< of ragged fields, in their order
  // Only for streamed sets:
  std::int64_t label = 0;
  std::uint64_t content_hash = 0;
  std::vector<decode::ImageSize> sizes;  ///< of each field's pixels, 0: not pixels; empty for a bad sample
};

/// The only writer of the database: a second one is refused. Not thread safe.
class Writer {
 public:
  /// Creates `folder`, or continues what is there if it was packed from the same source with the same
  /// options. kInvalidArgument: it holds something else ("OUT holds another packing: ..."), which is never
  /// modified, or another process packs into it. kEnvironment: disk or permission errors.
  static Result<Writer> open(const std::filesystem::path& folder, const Meta& meta,
                             const WriterOptions& options = {});

  /// Whether an earlier run completed it; then no other member may be called.
  [[nodiscard]] bool complete() const { return meta_.complete; }
  /// The first missing sample.
  [[nodiscard]] std::uint64_t next() const { return committed_ + pending_.size(); }
  /// Samples that a kill cannot lose.
  [[nodiscard]] std::uint64_t committed() const { return committed_; }
  [[nodiscard]] const Meta& meta() const { return meta_; }
  [[nodiscard]] std::uint64_t file_bytes() const;

  /// Appends the record of sample next(). Commits when enough is pending. kEnvironment: the disk is full
  /// (says how much is free and needed) or fails; committed samples stay, and a later run continues after
  /// them.
  Result<void> append(std::vector<std::uint8_t> record, const RecordFacts& facts);
  Result<void> commit();

  struct Tables {
    std::vector<std::uint64_t> labels;  ///< empty: not labelled
    std::vector<std::uint64_t> wholes;  ///< empty: each sample's index in the whole source is its own
  };
  /// Completes the database after the last sample. For a streamed set the tables are empty: its labels, the
  /// number of samples, the images' size if all have the same, and numbered class names are derived from its
  /// records. kInvalidArgument: it has no sample.
  Result<void> finish(const Tables& tables);

 private:
  using Clock = std::chrono::steady_clock;

  Result<void> resume();
  /// Reads the heads of the existing records.
  Result<void> recount();
  void note(const RecordFacts& facts);
  /// Derives the final description of a streamed set.
  void conclude(Meta& whole, std::vector<std::uint64_t>& labels) const;
  /// Runs `put(txn)` in a transaction of its own, and again with a larger map while the map is full.
  template <class Put>
  Result<void> transact(Put put);
  [[nodiscard]] Error cannot_write(int code) const;

  ring::UniqueFd lock_;  // before env_: held until that is closed
  Env env_;
  Meta meta_;
  WriterOptions options_;
  std::uint64_t committed_ = 0;
  std::vector<std::vector<std::uint8_t>> pending_;
  std::uint64_t pending_bytes_ = 0;
  Clock::time_point since_ = Clock::now();
  std::vector<std::vector<std::uint64_t>> lengths_;  // of each ragged field, for all samples
  std::vector<std::uint64_t> labels_;                // streamed: of all samples
};

}  // namespace headrace::server::store
