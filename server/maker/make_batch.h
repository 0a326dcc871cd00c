// Makes batches in private memory, by the jobs that fill the slots of a ring. Thread safety: any thread may
// call any member.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "headrace/client.h"
#include "headrace/cursor.h"
#include "headrace/error.h"
#include "server/exec/fill_job.h"
#include "server/exec/sample_maker.h"
#include "server/sampler/order.h"

namespace headrace::server::maker {

/// How often a waiting thread calls MakerOptions::interrupt.
inline constexpr std::chrono::milliseconds kBetweenInterrupts{50};

class BatchMaker {
 public:
  /// `info` and `maker` must outlive it. `interrupt`: see MakerOptions.
  BatchMaker(const StreamInfo& info, const exec::SampleMaker& maker, std::uint32_t threads,
             std::function<bool()> interrupt);

  /// `batch` names the batch in the result.
  [[nodiscard]] Result<BatchView> make(const Cursor& batch, const sampler::BatchRows& rows) const;

 private:
  struct Worker {
    exec::RowScratch scratch;
    metrics::StreamCounters counters;
  };
  /// A worker that no other thread has until the result is destroyed.
  [[nodiscard]] std::shared_ptr<Worker> worker() const;
  /// Makes slices until none is left.
  void work(exec::FillJob& job) const noexcept;
  /// The same with all threads.
  void complete(exec::FillJob& job) const;

  const StreamInfo& info_;
  const exec::SampleMaker& maker_;
  const std::uint32_t threads_;
  const std::function<bool()> interrupt_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Worker>> idle_;  // guarded by mutex_
};

}  // namespace headrace::server::maker
