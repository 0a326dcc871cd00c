// The work of making one batch, in a slot of a ring or in private memory. Workers claim slices of its rows
// through an atomic, so that a batch spreads over the free workers without a queue item per sample.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "clientlib/ring/ring_writer.h"
#include "server/exec/failure.h"
#include "server/exec/remote_batch.h"
#include "server/exec/sample_maker.h"
#include "server/publish/ledger.h"
#include "server/sampler/order.h"
#include "server/sampler/sampler.h"

namespace headrace::server::exec {

/// What the jobs of a stream have in common. All references must outlive them.
struct FillRules {
  const SampleMaker& maker;
  Failure& failure;         ///< an error ends all jobs that share it
  std::uint32_t slice = 1;  ///< rows that a worker claims at once; an even number if rows are mixed
  bool streamed = false;    ///< see Stream::streamed()
};

/// Bytes of a finished row; of a ragged field, one value counts.
[[nodiscard]] std::size_t bytes_per_row(const SampleMaker& maker);

/// A slice that keeps a worker busy for long enough.
[[nodiscard]] std::uint32_t rows_per_slice(const SampleMaker& maker, std::uint32_t batch_size);

/// Thread safety: immutable except for the two atomics; shared by the workers that claim from it.
struct FillJob {
  /// `expected`: each row's sample, if the stream prefetches samples. `others_need`: see keep_unless.
  /// `ordered`: see remote. `memory` must outlive the job.
  FillJob(const FillRules& rules, const ring::SlotMemory& memory, const publish::BatchKey& batch,
          const sampler::BatchRows& batch_rows, const sampler::EpochOrder& epoch_order,
          std::vector<std::uint64_t> expected = {}, std::optional<RowWindow::Lanes> others_need = {},
          std::shared_ptr<RemoteBatch> ordered = {})
      : maker(rules.maker),
        failure(rules.failure),
        streamed(rules.streamed),
        key(batch),
        rows(batch_rows),
        order(epoch_order),
        slice(rules.slice),
        lead(maker.mixes() ? batch_rows.first % 2 : 0),
        samples(std::move(expected)),
        keep_unless(others_need),
        remote(std::move(ordered)),
        descs(memory.rows()) {
    for (const FieldSpec& field : maker.fields()) {
      const std::size_t f = values.size();
      values.push_back(memory.values(f));
      if (field.kind == FieldKind::kRagged)
        ragged.push_back({f, memory.offsets(f), memory.value_bytes(f), {}});
    }
    for (RaggedField& field : ragged) field.rows.resize(rows.rows);
  }

  /// Collects the rows' values until all are there: only then is each row's offset known.
  struct RaggedField {
    std::size_t field;
    std::int64_t* offsets;
    std::size_t capacity;  ///< bytes
    std::vector<std::vector<std::uint8_t>> rows;
  };

  const SampleMaker& maker;
  Failure& failure;
  const bool streamed;
  const publish::BatchKey key;
  const sampler::BatchRows rows;
  const sampler::EpochOrder order;
  const std::uint32_t slice;  ///< an even number if rows are mixed
  /// Rows by which the first slice is shorter: slices begin with pairs that are mixed.
  const std::uint32_t lead;
  const std::vector<std::uint64_t> samples;
  /// Others than these lanes need the rows, too: they go into the stream's RowWindow. nullopt: nobody does.
  const std::optional<RowWindow::Lanes> keep_unless;
  /// Its rows are ordered from another process. Null: they are made here.
  const std::shared_ptr<RemoteBatch> remote;
  /// Has the memory, if that is a slot of a ring. Moved out by the worker that completes the job; other
  /// workers use the pointers below.
  std::optional<ring::LoanedSlot> slot;
  std::uint64_t checksum = 0;      ///< of the finished slot; written by the worker that ended the last row
  std::vector<std::byte*> values;  ///< the batch's first row of each field
  std::vector<RaggedField> ragged;
  ring::RowDesc* const descs;
  std::atomic<std::uint32_t> claimed{0};  ///< rows, counting `lead`
  std::atomic<std::uint32_t> done{0};     ///< acq_rel: the worker that reaches `rows` sees every row written

  [[nodiscard]] bool unclaimed() const {
    return begin_of(claimed.load(std::memory_order_relaxed)) < rows.rows;
  }

  /// The size of all rows' fields as stored in the slot; for a ragged field, of one value per row.
  [[nodiscard]] std::uint64_t bytes() const;

  /// Whether the next slice can be made without waiting for its samples or for another process.
  [[nodiscard]] bool ready() const {
    return !(remote && remote->awaited()) && ready(begin_of(claimed.load(std::memory_order_relaxed)));
  }

  /// Claims and fills slices until none is left or ready, or until `until_ns`. Exactly one call, which
  /// completes the last row, returns true.
  bool work(RowScratch& scratch, metrics::StreamCounters& counters, std::uint64_t until_ns);

 private:
  [[nodiscard]] std::uint32_t begin_of(std::uint32_t claim) const { return claim - std::min(claim, lead); }
  [[nodiscard]] std::uint32_t end_of(std::uint32_t first) const {
    return std::min(rows.rows, first + slice - (first == 0 ? lead : 0));
  }
  [[nodiscard]] bool ready(std::uint32_t first) const;
  bool claim(std::uint32_t& first);                            ///< one slice. False: none is left or ready
  void aim(std::vector<FieldTarget>& out, std::uint32_t row);  ///< sets the targets to the fields of one row
  void describe(std::uint32_t row, std::uint64_t sample_index, bool replaced);
  /// Makes a row. Nothing: another worker makes it now for another stream or batch; with `wait`, it waits for
  /// that worker. An error stops the stream.
  std::optional<Row> make(std::uint32_t row, bool wait, RowScratch& scratch,
                          metrics::StreamCounters& counters);
  /// Claims one slice after another until none is left or ready, or until `until_ns`. True: it completed the
  /// last row. Rows that other workers make now are added to scratch.deferred.
  bool make_slices(RowScratch& scratch, metrics::StreamCounters& counters, std::uint64_t until_ns);
  bool make_slice(std::uint32_t first, RowScratch& scratch, metrics::StreamCounters& counters);
  /// Copies a slice's rows from the process that has made them. False: they must be made here.
  bool copy_slice(std::uint32_t first, std::uint32_t count, RowScratch& scratch,
                  metrics::StreamCounters& counters);
  bool make_deferred(RowScratch& scratch, metrics::StreamCounters& counters);
  bool finish(std::uint32_t count);                            ///< True: these rows were the last ones
  Result<void> mix(std::uint32_t first, RowScratch& scratch);  ///< all rows of a slice
  void join_ragged();  ///< called by the worker that completed the last row
};

}  // namespace headrace::server::exec
