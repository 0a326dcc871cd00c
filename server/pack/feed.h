// Where the packer gets samples: a source of the server, or another program.
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
struct FedSample {
  source::Sample sample;
  std::string name;
  std::int64_t label = 0;
  std::string bad;                            ///< why the source cannot read it; empty: it can
  std::optional<std::uint64_t> content_hash;  ///< for streamed sets
};

class Feed {
 public:
  virtual ~Feed() = default;

  /// The description of the set, before --store and --resize.
  [[nodiscard]] virtual const store::Meta& meta() const = 0;
  /// Called once, before all reads: `there` samples exist already; `complete`: all of them, and none is read.
  virtual Result<void> begin(std::uint64_t there, bool complete) {
    return static_cast<void>(there), static_cast<void>(complete), Result<void>();
  }
  /// Any number of threads may call it. Each index is read once, and only after all smaller ones were
  /// requested, so a read may wait for those. False: there is no such sample, or the user stopped it. Errors
  /// end the packing.
  virtual Result<bool> read(std::uint64_t index, FedSample& out) = 0;
  /// See Source::fault; nothing that was made since then may be written.
  [[nodiscard]] virtual std::optional<Error> fault() const { return std::nullopt; }
  /// For a complete set; empty if it is streamed, see Writer::finish.
  [[nodiscard]] virtual store::Writer::Tables tables() const { return {}; }
};

}  // namespace headrace::server::pack
