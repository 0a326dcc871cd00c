// The interface from which the packer reads samples: a source of the server, or another program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/error.h"
#include "server/source/source.h"
#include "server/store/meta.h"
#include "server/store/writer.h"

namespace headrace::server::pack {

/// Owned by its reader, and reused for sample after sample.
struct InputSample {
  source::Sample sample;
  std::string name;
  std::int64_t label = 0;
  std::string bad;                            ///< why the source cannot read the sample; empty if it can
  std::optional<std::uint64_t> content_hash;  ///< for streamed sets
};

class Input {
 public:
  virtual ~Input() = default;

  /// The dataset's description as the input gives it; --store and --resize are not applied.
  [[nodiscard]] virtual const store::Meta& meta() const = 0;
  /// Called once, before all reads. `existing` samples are packed already. `complete`: these are all, and no
  /// sample will be read.
  virtual Result<void> begin(std::uint64_t /*existing*/, bool /*complete*/) { return {}; }
  /// Any number of threads may call it. Each index is read once, and only after all smaller ones were
  /// requested, so a read may wait for those. False: there is no such sample, or the user interrupted the
  /// packing. Errors end the packing.
  virtual Result<bool> read(std::uint64_t index, InputSample& out) = 0;
  /// See Source::fault(). After an error, no sample that was read since the last call without one may be
  /// written.
  [[nodiscard]] virtual std::optional<Error> fault() const { return std::nullopt; }
  /// The tables of a set whose size is known in advance, for Writer::finish(). Empty for streamed sets.
  [[nodiscard]] virtual store::Writer::Tables tables() const { return {}; }
};

}  // namespace headrace::server::pack
