// A thread that takes batches from a stream and starts their copies, ahead of the loop.
//
// Thread safety: the loop's thread calls everything but the constructor and destructor. Between resume() and
// pause() only the fetching thread may use the stream and the engine.
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

/// The next item for the loop: a batch, an error or, with neither, the end of the epoch.
struct Fetched {
  std::optional<DeviceBatch> batch;
  std::optional<Error> error;
  bool lost = false;         ///< with an error: a batch was taken from the stream, but not copied
  Cursor position;           ///< of the batch
  std::uint64_t length = 0;  ///< batches of its epoch
};

/// The memory of batches; each batch has its own block.
struct Blocks {
  std::shared_ptr<Device> device;
  std::shared_ptr<const BatchLayout> layout;
  std::uint32_t prefetch;               ///< batches that are fetched ahead
  bool pooled;                          ///< blocks come from a BlockPool
  std::vector<FinishedField> finished;  ///< fields that the device computes; from plan_fields()
};

class Fetcher {
 public:
  using Clock = std::chrono::steady_clock;

  Fetcher(Stream& stream, CopyEngine& engine, Blocks blocks);
  ~Fetcher();  ///< ends the thread; copies that it started continue
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  /// The number of fetched batches and of blocks supplied for further ones.
  [[nodiscard]] std::size_t under_way() const;
  void supply(DeviceBlock block);
  /// Fetches until an error or pause().
  void resume();
  /// Returns when the thread no longer uses the stream: after at most about 100 ms, unless a copy out of
  /// memory that is not pinned takes longer.
  void pause();

  /// Waits for the next item. nullopt: `interrupt`, which is called now and then, returned true. At the
  /// deadline the stream's own timeout error is returned like any other item.
  std::optional<Fetched> take(Clock::time_point deadline, const std::function<bool()>& interrupt);
  [[nodiscard]] std::uint32_t ready() const;
  [[nodiscard]] bool running() const;  ///< true also while the thread still uses the stream after an error
  /// Drops the items before the batch at `target`. Drops nothing and returns false if it was not fetched.
  bool drop_until(const Cursor& target);
  void drop_all();
  [[nodiscard]] bool fetches_here() const { return thread_.get_id() == std::this_thread::get_id(); }
  /// Interrupts the stream's next() while the fetching thread is in it: true if it must return early.
  [[nodiscard]] bool wanted_elsewhere();

 private:
  void run();
  [[nodiscard]] bool wanted() const;  // whether to fetch another batch; call with mutex_ held
  /// Fetches the next batch and starts its copy to `block`, which stays set if it was not used. nullopt: the
  /// loop needs the stream.
  std::optional<Fetched> fetch(std::optional<DeviceBlock>& block);
  Result<std::optional<BatchView>> next();
  /// Starts the copy of a batch.
  Result<void> ship(BatchView batch, DeviceBatch::State& state);
  Result<Completion> copy(BatchView batch, DeviceBatch::State& state);
  /// Queues, after the copy, the kernel that computes rows from source images; the batch then waits for it.
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
  std::optional<Clock::time_point> limited_by_;  // awaited_by_ when the current Stream::next() was called
  std::deque<Completion> flying_;                // only for the fetching thread: copies that may hold leases
  std::optional<RowFinisher> finisher_;          // only for the fetching thread; set for `device: gpu`
  std::thread thread_;                           // last: starts when all other members exist
};

}  // namespace headrace::gpu
