// Where samples come from. A source knows the number, names, fields and labels of its samples, and reads one
// sample at a time: one encoded item per field.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "server/sample/sample.h"
#include "server/source/field_set.h"

namespace headrace::server::source {

using sample::Content;
using sample::Item;
using sample::Sample;
using sample::SourceField;

/// Samples as decoded pixels in memory: see Source::view_samples().
struct SampleView {
  std::vector<std::uint64_t> indices;                ///< of the samples; unspecified afterwards
  std::vector<std::span<const std::uint8_t>> items;  ///< items of sample i: [i * fields, (i + 1) * fields)
  std::vector<decode::PixelShape> pixels;            ///< per field: Item::pixels, the same for every sample
};

/// Thread safety: all members are const; any number of workers may call them.
class Source {
 public:
  virtual ~Source() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// The fields of a sample besides its class; at least one.
  [[nodiscard]] virtual const std::vector<SourceField>& fields() const = 0;
  /// Reads the whole sample into `out`, one item per field (choose_fields() leaves some empty). Errors:
  /// kTransientIo for an I/O error of the system (after the policy's retries); kDatasetInvalid if the file
  /// vanished or changed its size (with one file per sample, only files in the SizeSample are compared);
  /// kBadSample only if the file exceeds the size limit. An empty file is no error here: the decoder reports
  /// it.
  virtual Result<void> read(std::uint64_t index, Sample& out) const = 0;
  /// As read(), but the items of fields that are not `wanted` are unspecified, and need not be read.
  virtual Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const {
    return static_cast<void>(wanted), read(index, out);
  }
  /// Announces that a stream will read these fields. Caches in memory keep only the announced ones, or all if
  /// none are announced. Call it before any read that may be kept.
  virtual void will_read(FieldSet wanted) const { static_cast<void>(wanted); }
  /// Gives what read() would give for all these samples, without a copy, in memory that lives as long as the
  /// source. False: this source has to read.
  virtual bool view_samples(SampleView& view) const { return static_cast<void>(view), false; }
  /// The outermost source of which this one is a part; itself if it is not a part.
  [[nodiscard]] virtual const Source& whole() const { return *this; }
  /// The sample's index in whole(); increases with `index`.
  [[nodiscard]] virtual std::uint64_t index_in_whole(std::uint64_t index) const { return index; }
  /// Caches keep a sample once, however often it is repeated. These are the numbers of different samples of
  /// the sources that this one is made of, in order; a single number if it is not made of several.
  [[nodiscard]] virtual std::vector<std::uint64_t> distinct_sizes() const { return {whole().size()}; }
  /// The sample's index among the samples that distinct_sizes() counts.
  [[nodiscard]] virtual std::uint64_t index_in_distinct(std::uint64_t index) const {
    return index_in_whole(index);
  }
  /// The sample index that batches report: the index in the whole source, also if this is a part of one or
  /// was packed from one. Increases with `index`.
  [[nodiscard]] virtual std::uint64_t whole_index(std::uint64_t index) const { return index; }
  /// Whether each sample has a class. Batches then carry it as the last field, "label": int64, or float32
  /// shares of all classes if rows are mixed.
  [[nodiscard]] virtual bool labelled() const { return true; }
  /// The sample's class; 0 if samples have none.
  [[nodiscard]] virtual std::int64_t label(std::uint64_t index) const = 0;
  /// For a kRagged field: the most values that `rows` samples can have together (a sample may repeat).
  /// Batches reserve room for them, so this must be known from the index, without reading.
  [[nodiscard]] virtual std::uint64_t most_values(std::size_t field, std::uint64_t rows) const {
    return static_cast<void>(field), rows;
  }
  /// The path relative to the source's root, for errors and manifests.
  [[nodiscard]] virtual std::string name(std::uint64_t index) const = 0;
  [[nodiscard]] virtual const std::vector<std::string>& class_names() const = 0;
  /// Identifies the dataset: xxh3 over sorted (relative path, size, label); no mtime. Sizes: see SizeSample.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  /// Why bytes of this source became permanently unreadable after it was opened: a mapped file was truncated.
  /// Rows made since then may be wrong, so check it after making rows and before publishing them.
  /// Composites check all their parts.
  [[nodiscard]] virtual std::optional<Error> fault() const { return std::nullopt; }
  /// Describes data that is not served although its owner may expect it; empty: there is none.
  [[nodiscard]] virtual std::string warning() const { return {}; }
};

}  // namespace headrace::server::source
