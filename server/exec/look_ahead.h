// Tells a stream's ReadAhead which samples come next. Thread safety: the engine's mutex.
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

  /// Prefetches the samples of a batch that is being started, then those of the batches after it. Returns
  /// this batch's samples; none if the stream does not prefetch.
  std::vector<std::uint64_t> expect(const publish::Ledger::Fill& fill, const sampler::BatchRows& rows);
  /// For a batch that is started, but whose samples are not to be read here. Returns none.
  std::vector<std::uint64_t> leave_out(const publish::Ledger::Fill& fill, const sampler::BatchRows& rows);
  /// Drops the expected samples of batches that no lane reaches any more, because it closed or sought
  /// elsewhere.
  void drop_unwanted() noexcept;
  /// Drops everything, because the stream stopped or drains.
  void clear();

 private:
  using Batch = std::pair<std::uint64_t, Cursor>;  ///< owner and cursor

  [[nodiscard]] std::vector<std::uint64_t> samples_of(std::uint64_t epoch,
                                                      const sampler::BatchRows& rows) const;
  /// The samples that the cache `decoded` does not hold yet.
  [[nodiscard]] std::vector<std::uint64_t> to_read(std::vector<std::uint64_t> samples) const;
  void expect_next(const publish::Ledger::Fill& fill);
  void drop_what_no_lane_reaches();
  bool unexpect(const Batch& batch);  ///< false: it was not expected

  const SampleMaker& maker_;
  const Lanes& lanes_;
  /// Batches that have not been started and whose samples are expected.
  std::map<Batch, sampler::BatchRows> expected_;
  std::uint64_t expected_rows_ = 0;
};

}  // namespace headrace::server::exec
