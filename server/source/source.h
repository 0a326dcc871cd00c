// Where samples come from. A source knows its samples' count, names and labels, and reads one sample's
// encoded bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

/// The encoded bytes of one sample in a buffer that its reader reuses: no allocation in the steady state.
struct Encoded {
  std::vector<std::uint8_t> bytes;
};

/// Thread safety: all members are const and may be called from any number of workers.
class Source {
 public:
  virtual ~Source() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Reads the sample whole into `out` (resized; capacity is kept). Errors: kTransientIo for what the system
  /// says of reading (after the retries of the policy), kDatasetInvalid if the file vanished or changed size,
  /// kBadSample if above the size limit (that alone: an empty file is read as empty, and the decoder names
  /// it).
  virtual Result<void> read(std::uint64_t index, Encoded& out) const = 0;
  /// What batches report as the sample's index: the index in the whole source, also where this is a part of
  /// one.
  [[nodiscard]] virtual std::uint64_t whole_index(std::uint64_t index) const { return index; }
  [[nodiscard]] virtual std::int64_t label(std::uint64_t index) const = 0;
  /// Path relative to the source's root: for errors and manifests.
  [[nodiscard]] virtual std::string name(std::uint64_t index) const = 0;
  [[nodiscard]] virtual const std::vector<std::string>& class_names() const = 0;
  /// Of the dataset: xxh3 over sorted (relative path, size, label); no mtime.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  /// What of the dataset is not served though its owner may think so; empty: nothing.
  [[nodiscard]] virtual std::string warning() const { return {}; }
};

}  // namespace headrace::server::source
