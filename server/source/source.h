// Where samples come from. A source knows its samples' count, names, fields and labels, and reads one sample:
// one item per field, not yet decoded.
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

namespace headrace::server::source {

using sample::Content;
using sample::Item;
using sample::Sample;
using sample::SourceField;

/// Samples that lie in memory, and where: see Source::lend().
struct Lent {
  std::vector<std::uint64_t> indices;                ///< of the samples; afterwards of no meaning
  std::vector<std::span<const std::uint8_t>> items;  ///< of sample i: [i * fields, (i + 1) * fields)
  std::vector<decode::PixelShape> pixels;            ///< of each field: Item::pixels of every sample
};

/// Thread safety: all members are const and may be called from any number of workers.
class Source {
 public:
  virtual ~Source() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// What a sample has besides its class; at least one.
  [[nodiscard]] virtual const std::vector<SourceField>& fields() const = 0;
  /// Reads the sample whole into `out`, an item per field. Errors: kTransientIo for what the system
  /// says of reading (after the retries of the policy), kDatasetInvalid if the file vanished or changed size
  /// (of samples that are a file each: of those in the SizeSample), kBadSample if above the size limit (that
  /// alone: an empty file is read as empty, and the decoder names it).
  virtual Result<void> read(std::uint64_t index, Sample& out) const = 0;
  /// What read() would give of all these samples, without a copy, in memory that lives as long as the source.
  /// False: this source has to read.
  virtual bool lend(Lent& lent) const { return static_cast<void>(lent), false; }
  /// What this is a part of, the outermost of all; itself if of nothing.
  [[nodiscard]] virtual const Source& whole() const { return *this; }
  /// Below whole().size(); rises with `index`.
  [[nodiscard]] virtual std::uint64_t index_in_whole(std::uint64_t index) const { return index; }
  /// What batches report as the sample's index: the index in the whole source, also where this is a part of
  /// one, or was packed from one. Rises with `index`.
  [[nodiscard]] virtual std::uint64_t whole_index(std::uint64_t index) const { return index; }
  /// Whether samples have a class each, which batches then carry as the last field, "label": int64, or
  /// float32 shares of all classes where rows are mixed.
  [[nodiscard]] virtual bool labelled() const { return true; }
  /// The class; 0 if there are none.
  [[nodiscard]] virtual std::int64_t label(std::uint64_t index) const = 0;
  /// Of a kRagged field: how many values `rows` samples can have together at most (one may come twice). What
  /// a batch needs room for; known from the index alone.
  [[nodiscard]] virtual std::uint64_t most_values(std::size_t field, std::uint64_t rows) const {
    return static_cast<void>(field), rows;
  }
  /// Path relative to the source's root: for errors and manifests.
  [[nodiscard]] virtual std::string name(std::uint64_t index) const = 0;
  [[nodiscard]] virtual const std::vector<std::string>& class_names() const = 0;
  /// Of the dataset: xxh3 over sorted (relative path, size, label); no mtime. Sizes: see SizeSample.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  /// The error that made bytes of this source permanently unreadable since it was opened: a mapped file was
  /// truncated. Rows made since may hold zeros: check after making rows, before publishing them. Composites
  /// check all their parts.
  [[nodiscard]] virtual std::optional<Error> fault() const { return std::nullopt; }
  /// What of the dataset is not served though its owner may think so; empty: nothing.
  [[nodiscard]] virtual std::string warning() const { return {}; }
};

}  // namespace headrace::server::source
