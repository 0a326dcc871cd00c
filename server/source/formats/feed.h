// Batches that another process hands over while they are served, each once and in that process's order: what
// `headrace.share()` makes of a DataLoader. The feeder writes a batch into a slot of shared memory and says
// so; workers copy its rows into the ring; then the slot is the feeder's again. Two slots let it write one
// batch while another is read, and hold it back when nobody reads.
//
// Invariants
//  1. Batch b is accepted after batch b - 1. At most `slots` batches are held.
//  2. A held batch is read by workers until release(b), and by nobody after it. [SYNC feed-slot: accept()
//     stores the slot's batch with release, Fed::read loads it with acquire.]
//  3. What the feeder writes while a batch is held changes values at most: counts and offsets were copied
//     and checked.
// Thread safety: all members of Feed, any thread; a batch is released once, by who saw its last row read.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/ring/segment.h"
#include "headrace/error.h"
#include "server/described/description.h"
#include "server/source/source.h"

namespace headrace::server::source {

struct FeedField {
  std::string name;
  DType dtype = DType::kUInt8;
  std::vector<std::int64_t> shape;  ///< of a row; ragged: of a value
  std::uint64_t most_values = 0;    ///< of one batch; 0: dense
};

struct FeedOptions {
  std::string name;  ///< the source's, for messages
  std::vector<FeedField> fields;
  std::uint64_t samples = 0;  ///< of an epoch
  std::uint32_t batch_size = 0;
  std::uint32_t slots = 2;

  static described::Description<FeedOptions> description();
};

class Feed {
 public:
  /// Lays the slots out, without memory for them. kConfigInvalid if one would have more than 1 TB.
  static Result<std::shared_ptr<Feed>> make(FeedOptions options);

  [[nodiscard]] const FeedOptions& options() const { return options_; }
  [[nodiscard]] std::uint64_t batches() const { return batches_; }  ///< of an epoch
  [[nodiscard]] std::uint32_t rows_of(std::uint64_t batch) const;   ///< batches count on through all epochs
  [[nodiscard]] std::string where(std::uint64_t batch) const;       ///< "batch 3 of epoch 0"

  /// Where a field lies in a slot, in bytes. `offsets`: rows + 1 of int64, for ragged fields.
  struct FieldPlace {
    std::uint64_t values = 0, offsets = 0, value_bytes = 0;
  };
  [[nodiscard]] const std::vector<FieldPlace>& places() const { return places_; }
  [[nodiscard]] std::uint64_t slot_bytes() const { return slot_bytes_; }

  /// Takes the slots' memory; before accept(). kNotEnoughMemory.
  Result<void> allocate();
  [[nodiscard]] int memory() const { return memory_->fd(); }  ///< once allocated

  /// What the feeder says of a slot that it filled.
  struct Batch {
    std::uint64_t number = 0;
    std::uint32_t slot = 0, rows = 0;
  };
  /// Holds it from here on. kBadMessage, and nothing is changed: not the next batch, another number of rows,
  /// a slot that is not free, offsets that do not rise from 0 or go beyond most_values.
  Result<void> accept(const Batch& batch);
  [[nodiscard]] std::uint64_t received() const;  ///< batches accepted so far
  /// Its slot is free; nothing if it is not held.
  void release(std::uint64_t batch);
  /// Calls `tell` for each slot that is freed from here on, one at a time; empty: nobody.
  void when_freed(std::function<void(std::uint32_t slot)> tell);

  /// One field of a row of a held batch; nothing if the batch is not held.
  struct HeldBatch {
    const std::byte* slot = nullptr;
    const std::vector<std::vector<std::int64_t>>* offsets = nullptr;  ///< by field; empty for dense ones
  };
  [[nodiscard]] std::optional<HeldBatch> held(std::uint64_t batch) const;

 private:
  struct Slot {
    std::atomic<std::uint64_t> holds{0};  ///< the batch's number + 1; 0: free
    std::vector<std::vector<std::int64_t>> offsets;
  };
  explicit Feed(FeedOptions options);
  Result<void> lay_out();
  [[nodiscard]] Result<void> take_offsets(const Batch& batch,
                                          std::vector<std::vector<std::int64_t>>& out) const;

  const FeedOptions options_;
  const std::uint64_t batches_;
  std::vector<FieldPlace> places_;
  std::uint64_t slot_bytes_ = 0;
  std::optional<ring::Segment> memory_;
  std::vector<Slot> slots_;
  mutable std::mutex mutex_;
  std::uint64_t received_ = 0;  // guarded by mutex_, as is the next
  std::function<void(std::uint32_t)> freed_;
};

/// A source over a feed: sample epoch * samples + position is the row at that position of that epoch
/// (sampler::make_epochs). Reading one whose batch is not held is kInvalidArgument: it has gone, or has not
/// come yet.
class Fed final : public Source {
 public:
  explicit Fed(std::shared_ptr<Feed> feed);
  [[nodiscard]] const std::shared_ptr<Feed>& feed() const { return feed_; }

  [[nodiscard]] std::uint64_t size() const override;
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override;
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override;
  [[nodiscard]] bool labelled() const override { return false; }
  [[nodiscard]] std::int64_t label(std::uint64_t) const override { return 0; }
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override;
  [[nodiscard]] std::string name(std::uint64_t index) const override;
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return classes_; }
  /// Of this run: no two feeds are known to be equal.
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  const std::shared_ptr<Feed> feed_;
  std::vector<SourceField> fields_;
  std::uint64_t fingerprint_ = 0;
  const std::vector<std::string> classes_;
};

}  // namespace headrace::server::source
