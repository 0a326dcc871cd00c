// Where the packer has samples from: a source of the server, or another program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/error.h"
#include "server/source/source.h"
#include "server/store/meta.h"
#include "server/store/writer.h"

namespace headrace::server::pack {

/// Its reader's, and reused for sample after sample.
struct FedSample {
  source::Sample sample;
  std::string name;
  std::int64_t label = 0;
  std::string bad;                            ///< why the source cannot give it; empty: it can
  std::optional<std::uint64_t> content_hash;  ///< of streamed sets
};

class Feed {
 public:
  virtual ~Feed() = default;

  /// What is packed, before any --store or --resize.
  [[nodiscard]] virtual const store::Meta& meta() const = 0;
  /// Called once, before all reads: so many samples are there; `complete`: all of them, and nothing is read.
  virtual Result<void> begin(std::uint64_t there, bool complete) {
    return static_cast<void>(there), static_cast<void>(complete), Result<void>();
  }
  /// By any number of threads. Each index is read once, and none before all smaller ones were asked for, so a
  /// read may wait for those. False: there is no such sample, or the user stopped it. Errors end the packing.
  virtual Result<bool> read(std::uint64_t index, FedSample& out) = 0;
  /// See Source::fault; nothing that was made since may be written.
  [[nodiscard]] virtual std::optional<Error> fault() const { return std::nullopt; }
  /// Of a complete set. Streamed: none, see Writer::finish.
  [[nodiscard]] virtual store::Writer::Tables tables() const { return {}; }
};

}  // namespace headrace::server::pack
