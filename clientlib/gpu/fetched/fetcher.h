// Takes batches from a stream and starts their copies, ahead of the loop: a thread of its own.
//
// Thread safety: all but the constructor and destructor: the loop's thread. The stream and the engine belong
// to the fetching thread while it runs (between resume() and pause()).
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "clientlib/gpu/device_batch.h"
#include "clientlib/gpu/rows/finisher.h"
#include "headrace/device_loader.h"

namespace headrace::gpu {

/// What the loop gets next: a batch, an error, or (neither) the epoch's end.
struct Fetched {
  std::optional<DeviceBatch> batch;
  std::optional<Error> error;
  bool lost = false;         ///< with an error: a batch was taken and not copied, the stream is behind it
  Cursor position;           ///< of the batch
  std::uint64_t length = 0;  ///< of its epoch
};

/// What batches are made of; each has a block of its own.
struct Blocks {
  std::shared_ptr<Device> device;
  std::shared_ptr<const BatchLayout> layout;
  std::uint32_t prefetch;  ///< batches that are fetched ahead
  bool pooled;             ///< blocks are BlockPool's
  std::vector<FinishedField> finished;
};

class Fetcher {
 public:
  using Clock = std::chrono::steady_clock;

  Fetcher(Stream& stream, CopyEngine& engine, Blocks blocks);
  ~Fetcher();  ///< ends the thread; what it started goes on
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  /// Batches that are there, or that a block is there for.
  [[nodiscard]] std::size_t under_way() const;
  void supply(DeviceBlock block);
  /// Goes on fetching until an error or pause().
  void resume();
  /// Returns when the thread leaves the stream alone, at most some 100 ms later.
  void pause();

  /// Waits until there is something, or `interrupt` says so (asked now and then): nullopt. The stream's own
  /// error at the deadline comes as any other.
  std::optional<Fetched> take(Clock::time_point deadline, const std::function<bool()>& interrupt);
  [[nodiscard]] std::uint32_t ready() const;
  [[nodiscard]] bool running() const;  ///< or still in the stream
  /// Drops what comes before the batch at `target`; nothing, and false, if that was not fetched.
  bool drop_until(const Cursor& target);
  void drop_all();
  [[nodiscard]] bool fetches_here() const { return thread_.get_id() == std::this_thread::get_id(); }
  /// What the stream's interrupt is while this thread is in it.
  [[nodiscard]] bool wanted_elsewhere();

 private:
  void run();
  [[nodiscard]] bool wanted() const;  // another batch; with mutex_
  /// The next batch, copied to `block`. Leaves `block` if nothing was put into it; nullopt: the loop wants
  /// the stream.
  std::optional<Fetched> fetch(std::optional<DeviceBlock>& block);
  Result<std::optional<BatchView>> next();
  /// Starts the copy of a batch.
  Result<void> ship(BatchView batch, DeviceBatch::State& state);
  Result<Completion> copy(BatchView batch, DeviceBatch::State& state);
  /// Behind a copy: pictures become rows. The state then waits for that.
  Result<void> finish(DeviceBatch::State& state);
  [[nodiscard]] std::chrono::milliseconds limit();

  Stream& stream_;
  CopyEngine& engine_;
  const Blocks blocks_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<DeviceBlock> supply_;  // guarded by mutex_, as all that follow
  std::deque<Fetched> queue_;
  bool running_ = false, busy_ = false, stopping_ = false;
  std::optional<Clock::time_point> awaited_by_;  // the loop waits until then
  std::optional<Clock::time_point> limited_by_;  // what the present call of Stream::next() knows of that
  std::deque<Completion> flying_;                // the fetching thread's: copies that may hold leases
  std::optional<RowFinisher> finisher_;          // the fetching thread's: of a stream with pictures for it
  std::thread thread_;                           // last: begins with all of it there
};

}  // namespace headrace::gpu
