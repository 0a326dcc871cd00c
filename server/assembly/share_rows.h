// Which streams share rows: those over the same samples in the same order, whose chains begin alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/exec/sample_maker.h"
#include "server/exec/start_gate.h"

namespace headrace::server::assembly {

struct Sharer {
  std::string stream;
  const config::StreamConfig* config;
  std::shared_ptr<exec::SampleMaker> maker;
};

/// Streams that share one window, or one stream with `sharing.window: 0B`, which has none.
struct SharingGroup {
  std::vector<std::string> streams;
  std::size_t transforms = 0;               ///< that they have in common
  std::shared_ptr<exec::RowWindow> window;  ///< null: `sharing.window` is 0B
  std::shared_ptr<exec::StartGate> gate;    ///< null: there is one stream, which has its own

  [[nodiscard]] bool has(const std::string& stream) const {
    return std::find(streams.begin(), streams.end(), stream) != streams.end();
  }
};

/// A stream, to compare it with another one.
struct Compared {
  const std::string& stream;
  const config::StreamConfig& config;
  const exec::SampleMaker& maker;
};
/// Why two streams over one source are in different groups, for a message: "seed, shuffle differ". Empty:
/// they have no samples in common.
std::string why_apart(const Compared& one, const Compared& other);

/// Gives each group of streams a window: of the largest `sharing.window` of its streams; where none is given,
/// of a part of `left`, the bytes of memory that nothing else needs. Streams whose rows cost little to make,
/// or have no fixed size, are in no group.
std::vector<SharingGroup> share_rows(const std::vector<Sharer>& streams, std::uint64_t left);

}  // namespace headrace::server::assembly
