// From (epoch, position) to one row: sampler -> source -> decode -> transforms, with the bad-sample policy.
// This is the pure function that a stream is (design, promise 1): nothing here depends on threads, batches,
// trainers or time.
#pragma once

#include <cstdint>
#include <map>
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
#include "server/metrics/counters.h"
#include "server/sampler/order.h"
#include "server/source/source.h"
#include "server/transform/plan.h"

namespace headrace::server::exec {

enum class OnError : std::uint8_t { kReplace, kFail };

struct SampleOptions {
  std::string stream;  ///< for messages
  std::uint64_t seed = 0;
  bool shuffle = true;
  OnError on_error = OnError::kReplace;
  double max_bad = 0.1;  ///< fraction of distinct samples found bad at which the stream fails
};

/// A worker's own buffers.
struct RowScratch {
  source::Sample sample;
  transform::Scratch pixels;
  std::vector<std::byte*> targets;
};

/// Where each field of a row goes, in the order of SampleMaker::fields().
using RowTargets = std::span<std::byte* const>;

struct Row {
  std::uint64_t sample_index = 0;  ///< within the whole source
  std::int64_t label = 0;
  bool replaced = false;
  std::string because;  ///< of a replaced one: the first candidate, and what is wrong with it
};

/// Thread safety: `make` by any number of workers, each with its own scratch and counters.
class SampleMaker {
 public:
  /// `plans`: of each of the source's fields that is an image, by name.
  SampleMaker(std::shared_ptr<const source::Source> source, std::map<std::string, transform::Plan> plans,
              const SampleOptions& options);

  /// The source's, then "label".
  [[nodiscard]] const std::vector<FieldSpec>& fields() const { return fields_; }
  /// Bytes of one row of a field.
  [[nodiscard]] std::size_t row_size(std::size_t field) const { return row_sizes_[field]; }
  [[nodiscard]] std::uint64_t size() const { return source_->size(); }
  [[nodiscard]] const source::Source& source() const { return *source_; }
  /// The epoch's order, computed once per batch by the caller.
  [[nodiscard]] sampler::Permutation order(std::uint64_t epoch) const;

  /// Writes a row of each field. Errors stop the stream: kTransientIo, kDatasetInvalid,
  /// kTooManyBadSamples, kBadSample with `on_error: fail`.
  Result<Row> make(const sampler::Permutation& order, std::uint64_t epoch, std::uint64_t position,
                   RowTargets out, RowScratch& scratch, metrics::StreamCounters& counters) const;

  /// The same row for somebody who wants to see it: nothing is counted, and what is bad here does not bring
  /// the stream nearer to its end.
  Result<Row> show(std::uint64_t epoch, std::uint64_t position, RowTargets out, RowScratch& scratch) const;

  /// The distinct samples found bad so far, and what is wrong with the first ten.
  struct BadSamples {
    std::size_t distinct = 0;
    std::vector<std::string> first;
  };
  [[nodiscard]] BadSamples bad_samples() const;

  /// What `make` drew, as JSON (server/transform/plan.h), and the name of the sample that was used.
  struct Explanation {
    std::string name;
    std::string parameters;
  };
  Result<Explanation> explain(std::uint64_t epoch, std::uint64_t position, const Row& row) const;

 private:
  /// Whether the row is the stream's, or one that is only shown.
  enum class Purpose : std::uint8_t { kServed, kShown };
  Result<Row> make_row(const sampler::Permutation& order, std::uint64_t epoch, std::uint64_t position,
                       RowTargets out, RowScratch& scratch, metrics::StreamCounters& counters,
                       Purpose purpose) const;
  /// Nothing, or why the sample is bad. No memory for it is such a reason.
  Result<std::optional<decode::Bad>> try_sample(std::uint64_t sample, std::uint64_t epoch,
                                                std::uint64_t position, RowTargets out, RowScratch& scratch,
                                                metrics::StreamCounters& counters) const;
  /// Nothing, or why it is bad.
  [[nodiscard]] std::optional<decode::Bad> render(std::size_t field, const source::Item& item,
                                                  const transform::DrawKey& key, RowScratch& scratch,
                                                  std::byte* out, metrics::StreamCounters& counters) const;
  /// `why`: name and reason.
  Result<void> note_bad(std::uint64_t sample, const std::string& why, Purpose purpose) const;

  std::shared_ptr<const source::Source> source_;
  std::vector<std::optional<transform::Plan>> plans_;  ///< of the source's fields; none: values as they are
  bool decodes_ = false;                               ///< there is a plan
  SampleOptions options_;
  std::vector<FieldSpec> fields_;
  std::vector<std::size_t> row_sizes_;  ///< of fields_
  mutable std::mutex bad_mutex_;
  mutable std::unordered_set<std::uint64_t> bad_;  // guarded by bad_mutex_, as is the next
  mutable std::vector<std::string> first_bad_;
};

/// Memory for one row without a batch: its fields end to end.
struct LooseRow {
  explicit LooseRow(const SampleMaker& maker);
  std::vector<std::byte> bytes;
  std::vector<std::byte*> fields;
};

}  // namespace headrace::server::exec
