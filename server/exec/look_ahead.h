// What a stream tells its read-ahead of the samples to come. Thread safety: the engine's mutex.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "headrace/cursor.h"
#include "server/exec/lanes.h"
#include "server/exec/sample_maker.h"
#include "server/publish/ledger.h"
#include "server/sampler/order.h"

namespace headrace::server::exec {

class LookAhead {
 public:
  /// Both must outlive it.
  LookAhead(const SampleMaker& maker, const Lanes& lanes) : maker_(maker), lanes_(lanes) {}

  /// Has the samples of a batch that is started read, then those of the batches behind it. Returns the
  /// batch's; none if the stream does not read ahead.
  std::vector<std::uint64_t> expect(const publish::Ledger::Fill& fill, const sampler::BatchRows& rows);
  /// Drops what is expected of batches that no lane comes to any more: one left, or sought elsewhere.
  void drop_unwanted() noexcept;
  /// Drops everything: the stream stopped or drains.
  void clear();

 private:
  using Batch = std::pair<std::uint32_t, Cursor>;  ///< owner and cursor

  [[nodiscard]] std::vector<std::uint64_t> samples_of(std::uint64_t epoch,
                                                      const sampler::BatchRows& rows) const;
  /// Those that the cache `decoded` does not hold yet.
  [[nodiscard]] std::vector<std::uint64_t> to_read(std::vector<std::uint64_t> samples) const;
  void expect_next(const publish::Ledger::Fill& fill);
  void drop_what_no_lane_reaches();
  bool unexpect(const Batch& batch);  ///< false: it was not expected

  const SampleMaker& maker_;
  const Lanes& lanes_;
  std::map<Batch, sampler::BatchRows>
      expected_;  ///< batches that are not started yet and whose samples are expected
  std::uint64_t expected_rows_ = 0;
};

}  // namespace headrace::server::exec
