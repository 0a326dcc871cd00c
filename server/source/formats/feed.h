// Batches that another process sends while they are served, each once and in that process's order: what
// `headrace.share()` makes of a DataLoader. The feeder writes a batch into a slot of shared memory and
// announces it; workers copy its rows into the ring; then the slot belongs to the feeder again. With two
// slots it writes one batch while another is read, and blocks when no worker reads.
//
// Invariants
//  1. Batch b is accepted after batch b - 1. At most `slots` batches are held.
//  2. Workers read a held batch until release(b), and not after it. [SYNC feed-slot: accept() stores the
//     slot's batch with release, Fed::read loads it with acquire.]
//  3. If the feeder writes to a held batch, only values can change: counts and offsets were copied and
//     checked.
// Thread safety: any thread may call any member of Feed; the thread that saw a batch's last row read releases
// it.
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
  std::uint64_t most_values = 0;    ///< in one batch; 0: dense
};

struct FeedOptions {
  std::string name;  ///< the source's name, for messages
  std::vector<FeedField> fields;
  std::uint64_t samples = 0;  ///< per epoch
  std::uint32_t batch_size = 0;
  std::uint32_t slots = 2;

  static described::Description<FeedOptions> description();
};

class Feed {
 public:
  /// Computes the slots' layout without allocating them. kConfigInvalid if a slot would exceed 1 TB.
  static Result<std::shared_ptr<Feed>> make(FeedOptions options);

  [[nodiscard]] const FeedOptions& options() const { return options_; }
  [[nodiscard]] std::uint64_t batches() const { return batches_; }  ///< per epoch
  [[nodiscard]] std::uint32_t rows_of(std::uint64_t batch) const;   ///< numbers continue through all epochs
  [[nodiscard]] std::string where(std::uint64_t batch) const;       ///< "batch 3 of epoch 0"

  /// The offset of a field in a slot, in bytes. `offsets`: rows + 1 int64 values, for ragged fields.
  struct FieldPlace {
    std::uint64_t values = 0, offsets = 0, value_bytes = 0;
  };
  [[nodiscard]] const std::vector<FieldPlace>& places() const { return places_; }
  [[nodiscard]] std::uint64_t slot_bytes() const { return slot_bytes_; }

  /// Allocates the slots. Call it before accept(). kNotEnoughMemory.
  Result<void> allocate();
  [[nodiscard]] int memory() const { return memory_->fd(); }  ///< after allocate()

  /// The feeder's announcement of a slot that it filled.
  struct Batch {
    std::uint64_t number = 0;
    std::uint32_t slot = 0, rows = 0;
  };
  /// Holds the batch from now on. kBadMessage, without effect: not the next batch, a wrong number of rows, a
  /// slot that is not free, offsets that decrease, do not begin at 0 or exceed most_values.
  Result<void> accept(const Batch& batch);
  [[nodiscard]] std::uint64_t received() const;  ///< batches accepted so far
  /// Frees the batch's slot; no effect if the batch is not held.
  void release(std::uint64_t batch);
  /// Sets the function to call for each slot that is freed from now on, one at a time; empty: none.
  void when_freed(std::function<void(std::uint32_t slot)> tell);

  /// One field of a row of a held batch; empty if the batch is not held.
  struct HeldBatch {
    const std::byte* slot = nullptr;
    const std::vector<std::vector<std::int64_t>>* offsets = nullptr;  ///< by field; empty for dense fields
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
  std::uint64_t received_ = 0;  // guarded by mutex_, as the next
  std::function<void(std::uint32_t)> freed_;
};

/// A source over a feed: sample epoch * samples + position is the row at that position of that epoch
/// (sampler::make_epochs). Reading a sample whose batch is not held is kInvalidArgument: the batch is gone or
/// has not come yet.
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
  /// Unique to this run: no two feeds are known to be equal.
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  const std::shared_ptr<Feed> feed_;
  std::vector<SourceField> fields_;
  std::uint64_t fingerprint_ = 0;
  const std::vector<std::string> classes_;
};

}  // namespace headrace::server::source
