// The work of filling one slot: rows are claimed in slices by an atomic, so that a batch spreads over the
// workers that are free without a queue item per sample.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "clientlib/ring/ring_writer.h"
#include "server/exec/sample_maker.h"
#include "server/publish/ledger.h"
#include "server/sampler/order.h"
#include "server/sampler/sampler.h"

namespace headrace::server::exec {

class Stream;

/// Thread safety: immutable but for the two atomics; shared by the workers that claim from it.
struct FillJob {
  /// `expected`: each row's sample, if the stream reads ahead.
  FillJob(Stream& owner, ring::LoanedSlot loan, const publish::BatchKey& batch,
          const sampler::BatchRows& batch_rows, const sampler::EpochOrder& epoch_order,
          std::uint32_t rows_per_slice, const SampleMaker& maker, std::vector<std::uint64_t> expected)
      : stream(owner),
        key(batch),
        rows(batch_rows),
        order(epoch_order),
        slice(rows_per_slice),
        lead(maker.mixes() ? batch_rows.first % 2 : 0),
        samples(std::move(expected)),
        slot(std::move(loan)),
        descs(slot->rows()) {
    for (const FieldSpec& field : maker.fields()) {
      const std::size_t f = values.size();
      values.push_back(slot->values(f));
      if (field.kind == FieldKind::kRagged)
        ragged.push_back({f, slot->offsets(f), field.ragged_capacity, {}});
    }
    for (RaggedField& field : ragged) field.rows.resize(rows.rows);
  }

  /// The rows' values wait here until all of them are there: only then each knows its place.
  struct RaggedField {
    std::size_t field;
    std::int64_t* offsets;
    std::int64_t capacity;
    std::vector<std::vector<std::uint8_t>> rows;
  };

  Stream& stream;
  const publish::BatchKey key;
  const sampler::BatchRows rows;
  const sampler::EpochOrder order;
  const std::uint32_t slice;  ///< even where rows are mixed
  const std::uint32_t
      lead;  ///< rows that the first slice is shorter by: slices begin with pairs that are mixed
  const std::vector<std::uint64_t> samples;
  std::optional<ring::LoanedSlot>
      slot;  ///< taken by whoever completes the job; workers that come late use the pointers
  std::vector<std::byte*> values;  ///< of each field, the batch's first row
  std::vector<RaggedField> ragged;
  ring::RowDesc* const descs;
  std::atomic<std::uint32_t> claimed{0};  ///< rows, and `lead`
  std::atomic<std::uint32_t> done{0};     ///< acq_rel: the worker that reaches `rows` sees every row written

  [[nodiscard]] bool unclaimed() const {
    return begin_of(claimed.load(std::memory_order_relaxed)) < rows.rows;
  }

  /// Of all rows' fields, as they lie in the slot; of a ragged field, one value per row.
  [[nodiscard]] std::uint64_t bytes() const;

  /// Whether the next slice can be made without waiting for its samples.
  [[nodiscard]] bool ready() const { return ready(begin_of(claimed.load(std::memory_order_relaxed))); }

  /// Claims and fills slices until none is left or ready, or `until_ns` is past. True for the one call that
  /// completed the last row.
  bool work(RowScratch& scratch, metrics::StreamCounters& counters, std::uint64_t until_ns);

 private:
  [[nodiscard]] std::uint32_t begin_of(std::uint32_t claim) const { return claim - std::min(claim, lead); }
  [[nodiscard]] std::uint32_t end_of(std::uint32_t first) const {
    return std::min(rows.rows, first + slice - (first == 0 ? lead : 0));
  }
  [[nodiscard]] bool ready(std::uint32_t first) const;
  bool claim(std::uint32_t& first);                            ///< a slice. False: none is left or ready
  void aim(std::vector<FieldTarget>& out, std::uint32_t row);  ///< at the fields of one row
  void describe(std::uint32_t row, std::uint64_t sample_index, bool replaced);
  Result<void> mix(std::uint32_t first, RowScratch& scratch);  ///< a slice's rows
  void join_ragged();                                          ///< by the worker that completed the last row
};

}  // namespace headrace::server::exec
