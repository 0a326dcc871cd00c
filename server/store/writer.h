// Writes a packed database, sample after sample, so that a kill at any moment loses little and a later
// run goes on.
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

/// What a record adds to the set's statistics.
struct RecordFacts {
  std::uint64_t raw_bytes = 0;         ///< as the source has it
  std::string undecodable;             ///< why, if it is
  std::vector<std::uint64_t> lengths;  ///< of ragged fields, in their order
  // Of streamed sets:
  std::int64_t label = 0;
  std::uint64_t content_hash = 0;
  std::vector<decode::ImageSize> sizes;  ///< of each field's pixels, 0: no pixels; of a bad sample: none
};

/// Holds the database alone: a second writer is refused. Not thread safe.
class Writer {
 public:
  /// Makes `folder`, or goes on with what lies there if it was packed from the same source with the same
  /// options. kInvalidArgument: it holds something else ("OUT holds another packing: ..."), which is never
  /// touched, or another process packs into it. kEnvironment: the disk, rights.
  static Result<Writer> open(const std::filesystem::path& folder, const Meta& meta,
                             const WriterOptions& options = {});

  /// It was finished before; then nothing else may be called.
  [[nodiscard]] bool complete() const { return meta_.complete; }
  /// The first sample that is not there yet.
  [[nodiscard]] std::uint64_t next() const { return committed_ + pending_.size(); }
  /// Of these a kill loses none.
  [[nodiscard]] std::uint64_t committed() const { return committed_; }
  [[nodiscard]] const Meta& meta() const { return meta_; }
  [[nodiscard]] std::uint64_t file_bytes() const;

  /// The record of sample next(). Commits when enough is pending. kEnvironment: the disk is full (how much
  /// there is and is needed), or fails; what was committed stays, and a later run goes on from there.
  Result<void> append(std::vector<std::uint8_t> record, const RecordFacts& facts);
  Result<void> commit();

  struct Tables {
    std::vector<std::uint64_t> labels;  ///< empty: not labelled
    std::vector<std::uint64_t> wholes;  ///< empty: each sample's index is its own
  };
  /// All samples are there: now the database is whole. Of a streamed set the tables are empty: its labels,
  /// the number of samples, the images' size if all have one, and the numbers that are the names of classes
  /// without names follow from its records. kInvalidArgument: it has no sample.
  Result<void> finish(const Tables& tables);

 private:
  using Clock = std::chrono::steady_clock;

  Result<void> resume();
  /// From the heads of the records that are there.
  Result<void> recount();
  void note(const RecordFacts& facts);
  /// What a streamed set turned out to be.
  void conclude(Meta& whole, std::vector<std::uint64_t>& labels) const;
  /// Runs `put(txn)` in a transaction of its own, again with a larger map while that is full.
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
  std::vector<std::vector<std::uint64_t>> lengths_;  // of each ragged field, of all samples
  std::vector<std::uint64_t> labels_;                // streamed: of all samples
};

}  // namespace headrace::server::store
