// Makes one row from (epoch, position): sampler -> source -> decode -> transforms, with the policy for bad
// samples. A stream is this pure function (design, promise 1): nothing here depends on threads, batches,
// clients or time.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "headrace/error.h"
#include "headrace/field.h"
#include "server/cache/sample_caches.h"
#include "server/exec/field_plans.h"
#include "server/exec/row_mixer.h"
#include "server/exec/row_window.h"
#include "server/exec/shared_fields.h"
#include "server/io/read_ahead.h"
#include "server/metrics/counters.h"
#include "server/sampler/sampler.h"
#include "server/source/source.h"

namespace headrace::server::exec {

/// kMark: a row whose sample is bad counts as replaced, and its content is unspecified; another process makes
/// it.
enum class OnError : std::uint8_t { kReplace, kFail, kMark };

struct SampleOptions {
  std::string stream;  ///< for messages
  std::uint64_t seed = 0;
  sampler::SamplerPtr sampler;  ///< with the stream's seed; none: the whole source, shuffled
  OnError on_error = OnError::kReplace;
  double max_bad = 0.1;  ///< the stream fails above this fraction of the samples that it can draw
  /// The caches `decoded` of the source's distinct samples, one for each plan; equal kept_keys() share one.
  cache::SampleCaches decoded;
  std::shared_ptr<const RowMixer> mixer;  ///< for this source and these plans; none: rows are not mixed
  /// Over the same source; none: samples are read as rows are made.
  std::shared_ptr<io::ReadAhead> read_ahead;
};

/// Where a field of a row is written.
struct FieldTarget {
  std::byte* dense = nullptr;
  std::vector<std::uint8_t>* ragged = nullptr;  ///< receives the row's values
  enum class Part : std::uint8_t {
    kRow,
    kDevice,  ///< a source image and its RowSteps
    kShared,  ///< what other streams share: see SharedFields
  };
  Part part = Part::kRow;
};

/// In the order of SampleMaker::fields().
using RowTargets = std::span<const FieldTarget>;

/// A finished row, as a possible partner for mixing.
struct PlacedRow {
  std::uint64_t position = 0;
  std::int64_t label = 0;
};

/// A row of the slice that make_slice() was called for.
struct SliceRow {
  bool made = false;               ///< false: call make() for it
  std::uint64_t sample_index = 0;  ///< see Row
  std::int64_t label = 0;
};

/// The input from which a field of a row is made.
struct FieldInput {
  cache::Piece piece;
  bool prepared = false;  ///< an image as Plan::prepare makes it; false: as the source gives it
};

/// For rows that are copied from another process.
struct RemoteScratch {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint8_t> replaced;
  std::vector<iovec> to, from;
};

/// Buffers of one worker.
struct RowScratch {
  source::Sample sample;
  transform::Scratch pixels;
  std::vector<FieldTarget> targets, shared;
  std::vector<std::uint32_t> deferred;  ///< rows of a batch that other workers make
  std::vector<transform::Step> drawn;   ///< random steps for the device
  std::vector<PlacedRow> placed;        ///< rows of a slice that is to be mixed
  std::vector<FieldInput> inputs;       ///< one per field
  std::vector<const cache::Piece*>
      kept;  ///< what caches hold, one per field (null: not held); empty: no cache
  std::vector<const cache::Piece*> to_keep;  ///< inputs that caches are to keep, one per field (null: none)
  std::vector<std::vector<std::uint8_t>> prepared;  ///< pixels for the cache
  // for a slice
  std::vector<std::uint64_t> samples;
  source::SampleView view;
  std::vector<SliceRow> rows;
  std::string bad;  ///< for a row that failed for bad samples: its own sample, and what is wrong with it
  RemoteScratch remote;
};

struct Row {
  std::uint64_t sample_index = 0;  ///< within the whole source
  std::int64_t label = 0;
  bool replaced = false;
  std::string because;  ///< for a replaced sample: the first candidate, and what is wrong with it
};

/// Thread safety: any number of workers may call `make`, each with its own scratch and counters.
class SampleMaker {
 public:
  /// `plans`: from plan_fields() of this source.
  SampleMaker(std::shared_ptr<const source::Source> source, std::vector<FieldPlan> plans,
              const SampleOptions& options);

  /// The plans' fields, then "label" if the source's samples have classes: as they are in finished rows.
  [[nodiscard]] const std::vector<FieldSpec>& fields() const { return fields_; }
  /// Bytes of one row of a dense field, or of one value of a ragged field.
  [[nodiscard]] std::size_t row_size(std::size_t field) const { return row_sizes_[field]; }
  /// The same in the ring, which holds source images and RowSteps for rows that the device computes.
  [[nodiscard]] std::size_t ring_row_size(std::size_t field) const { return ring_row_sizes_[field]; }
  [[nodiscard]] bool for_device(std::size_t field) const {
    return field < plans_.size() && plans_[field].on_device != nullptr;
  }
  /// The fields that the device computes, in the order of fields().
  [[nodiscard]] std::vector<DeviceImage> on_device() const;
  /// Positions in an epoch.
  [[nodiscard]] std::uint64_t size() const { return options_.sampler->size(); }
  [[nodiscard]] const source::Source& source() const { return *source_; }
  [[nodiscard]] const sampler::Sampler& sampler() const { return *options_.sampler; }
  [[nodiscard]] io::ReadAhead* read_ahead() const { return options_.read_ahead.get(); }
  /// Whether making the sample reads it: false once the cache `decoded` holds it.
  [[nodiscard]] bool reads(std::uint64_t sample) const {
    return !options_.decoded || !options_.decoded.holds(source_->index_in_distinct(sample));
  }
  /// The epoch's order, computed once per batch by the caller.
  [[nodiscard]] sampler::EpochOrder order(std::uint64_t epoch) const {
    return options_.sampler->order(epoch);
  }

  /// Writes a row of each field. An error stops the stream: kTransientIo, kDatasetInvalid,
  /// kTooManyBadSamples, kBadSample with `on_error: fail`.
  Result<Row> make(const sampler::EpochOrder& order, std::uint64_t epoch, std::uint64_t position,
                   RowTargets out, RowScratch& scratch, metrics::StreamCounters& counters) const;

  /// Makes rows in two parts from now on, the first of which is kept in `window` for others. `stream`: this
  /// stream's number among those that share it. Call it before the first make().
  void share(SharedFields fields, std::shared_ptr<RowWindow> window, std::uint32_t stream);
  [[nodiscard]] RowWindow* window() const { return window_.get(); }
  /// The foremost position of the clients of the streams that share the window; nullopt: there are none.
  [[nodiscard]] std::optional<publish::Position> foremost_in_other_streams() const {
    return window_ ? window_->foremost_in_other_streams(window_stream_) : std::nullopt;
  }
  [[nodiscard]] std::uint32_t window_stream() const { return window_stream_; }
  [[nodiscard]] const std::vector<FieldPlan>& plans() const { return plans_; }
  [[nodiscard]] bool keeps_decoded() const { return static_cast<bool>(options_.decoded); }
  /// make() with the window: takes the row from there or, with `keep_unless` (see RowWindow::find), puts it
  /// there. Nothing: another worker makes the row now. With `wait` it waits for that worker. REQUIRES:
  /// window().
  Result<std::optional<Row>> make_shared(const sampler::EpochOrder& order, std::uint64_t epoch,
                                         std::uint64_t position,
                                         const std::optional<RowWindow::Lanes>& keep_unless, bool wait,
                                         RowTargets out, RowScratch& scratch,
                                         metrics::StreamCounters& counters) const;

  /// Makes some of the rows of positions [first, first + count), modulo size(): those for which nothing has
  /// to be read or decoded and whose pixels are only moved, that is bare pixels in memory and entries of the
  /// cache `decoded`. The rows equal make()'s and, if they are small, cost a fraction of its time, because
  /// shared work is done once per slice. `out`: targets of the first row. Returns `count` rows in `scratch`,
  /// or none if nothing was made. The content of a row that was not made is unspecified.
  std::span<const SliceRow> make_slice(const sampler::EpochOrder& order, std::uint64_t epoch,
                                       std::uint64_t first, std::uint32_t count, RowTargets out,
                                       RowScratch& scratch, metrics::StreamCounters& counters) const;

  /// Whether finished rows have to be mixed.
  [[nodiscard]] bool mixes() const { return options_.mixer != nullptr; }
  /// Mixes consecutive rows from `first` on that make() has finished (mix_rows.cpp). A partner that is not
  /// among them is made again, so pass neighbors together.
  Result<void> mix_rows(const sampler::EpochOrder& order, std::uint64_t epoch,
                        std::span<const PlacedRow> rows, RowTargets first, RowScratch& scratch) const;

  /// See Source::fault.
  [[nodiscard]] std::optional<Error> fault() const { return source_->fault(); }

  /// The same row, for inspection: nothing is counted, and a bad sample does not bring the stream closer to
  /// failing.
  Result<Row> show(std::uint64_t epoch, std::uint64_t position, RowTargets out, RowScratch& scratch) const;

  /// The most distinct bad samples with which the stream goes on.
  [[nodiscard]] double allowed_bad() const;

  /// The distinct bad samples found so far, and what is wrong with the first ten.
  struct BadSamples {
    std::size_t distinct = 0;
    std::vector<std::string> first;
  };
  [[nodiscard]] BadSamples bad_samples() const;

  /// What `make` drew, as JSON (server/transform/plan.h), and the name of the sample that was used.
  struct Explanation {
    std::string name;
    std::string parameters;
    std::uint64_t sample = 0;  ///< its index for source().read()
  };
  Result<Explanation> explain(std::uint64_t epoch, std::uint64_t position, const Row& row) const;

 private:
  /// Whether the row is part of the stream or only for inspection.
  enum class Purpose : std::uint8_t { kServed, kShown };
  Result<Row> make_row(const sampler::EpochOrder& order, std::uint64_t epoch, std::uint64_t position,
                       RowTargets out, RowScratch& scratch, metrics::StreamCounters& counters,
                       Purpose purpose) const;
  /// Nothing, or why the sample is bad; running out of memory for it counts as bad. `expected`: the stream
  /// announced it to its ReadAhead; it is neither a replacement nor for inspection.
  Result<std::optional<decode::Bad>> try_sample(std::uint64_t sample, std::uint64_t epoch,
                                                std::uint64_t position, bool expected, RowTargets out,
                                                RowScratch& scratch, metrics::StreamCounters& counters) const;
  /// Makes all fields of a row from scratch.inputs.
  Result<std::optional<decode::Bad>> make_fields(std::uint64_t sample, const transform::DrawKey& key,
                                                 RowTargets out, RowScratch& scratch,
                                                 metrics::StreamCounters& counters) const;
  /// Reads the fields that are not kept into scratch.sample.
  Result<void> read_missing(std::uint64_t sample, bool expected, RowScratch& scratch,
                            metrics::StreamCounters& counters) const;
  /// Sets scratch.to_keep to what the claimed fields' caches are to keep of the sample.
  void prepare_claimed(const cache::SampleCaches::Claims& claims, RowScratch& scratch,
                       metrics::StreamCounters& counters) const;
  /// Sets scratch.inputs to what is kept of the sample and to what was read of it.
  void set_inputs(RowScratch& scratch) const;
  /// Replaces an input that was read by what a cache is to keep of it, which has at most `room` bytes. False:
  /// nothing is to be kept.
  bool prepare(std::size_t field, std::uint64_t room, RowScratch& scratch,
               metrics::StreamCounters& counters) const;
  /// Returns its size in the chain's pixels, or why it is bad.
  [[nodiscard]] decode::Decoded<transform::Size> render(std::size_t field, const transform::DrawKey& key,
                                                        RowScratch& scratch, const FieldTarget& out,
                                                        metrics::StreamCounters& counters) const;
  /// Makes a row's random draws for the device and writes them after the row's source image.
  void add_steps(std::size_t field, const transform::DrawKey& key, std::byte* row, RowScratch& scratch) const;
  Result<void> copy_values(std::size_t field, std::span<const std::uint8_t> bytes, std::uint64_t sample,
                           const FieldTarget& out) const;
  // shared_rows.cpp
  Result<void> finish_shared(const std::byte* shared, const transform::DrawKey& key, RowTargets out,
                             RowScratch& scratch, metrics::StreamCounters& counters) const;
  // slice_maker.cpp
  /// Returns whether the row was made from items that are in memory.
  template <class ItemOf>
  bool cut_row(ItemOf item_of, const transform::DrawKey& key, std::size_t row, RowTargets out,
               RowScratch& scratch) const;
  /// `why`: the sample's name and the reason.
  Result<void> note_bad(std::uint64_t sample, const std::string& why, Purpose purpose) const;

  std::shared_ptr<const source::Source> source_;
  std::vector<FieldPlan> plans_;
  bool decodes_ = false;  ///< there is an image
  bool cuts_ = false;  ///< make_slice() can make rows, from the source's memory or from the cache `decoded`
  SampleOptions options_;
  std::vector<std::size_t> source_fields_;  ///< that the plans use, each once
  std::vector<FieldSpec> fields_;
  std::vector<std::size_t> row_sizes_, ring_row_sizes_;  ///< one per field
  SharedFields shared_;                                  ///< if there is a window
  std::shared_ptr<RowWindow> window_;
  std::uint32_t window_stream_ = 0;
  mutable std::mutex bad_mutex_;
  mutable std::unordered_set<std::uint64_t> bad_;  // guarded by bad_mutex_, as the next
  mutable std::vector<std::string> first_bad_;
};

/// Memory for one row outside a batch.
class LooseRow {
 public:
  explicit LooseRow(const SampleMaker& maker);
  LooseRow(const LooseRow&) = delete;
  LooseRow& operator=(const LooseRow&) = delete;

  std::vector<FieldTarget> fields;
  /// The fields as they were made, all of them dense: a ragged field's first dimension is its number of
  /// values.
  [[nodiscard]] std::vector<FieldSpec> specs() const;
  /// The fields' bytes, concatenated.
  [[nodiscard]] std::string bytes() const;

 private:
  const SampleMaker& maker_;
  std::vector<std::byte> dense_;
  std::vector<std::vector<std::uint8_t>> ragged_;  ///< one entry per field
};

/// A row that was made for inspection.
struct ShownRow {
  std::unique_ptr<LooseRow> fields;
  Row row;
  SampleMaker::Explanation explanation;
};

/// SampleMaker::show() and explain().
Result<ShownRow> show_row(const SampleMaker& maker, std::uint64_t epoch, std::uint64_t position,
                          RowScratch& scratch);

}  // namespace headrace::server::exec
