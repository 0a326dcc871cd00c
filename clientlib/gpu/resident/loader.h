// Batches of a set that lives on the device: made there, by one launch for several of them. Order, cursor,
// state and rows are those of the stream as any client sees it; no byte of a batch comes from the host, and
// the server is asked for nothing once the set is there.
//
// Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "clientlib/base/epoch_plan.h"
#include "clientlib/client/fork_guard.h"
#include "clientlib/gpu/block_pool.h"
#include "clientlib/gpu/resident/kernel.h"
#include "clientlib/gpu/resident/set.h"
#include "headrace/device_loader.h"

namespace headrace::gpu {

class ResidentLoader {
 public:
  /// Of a shard stream the attachment stays, idle: so ranks that disagree are told so. Others have nobody
  /// wait for them: theirs ends here. Errors are DeviceLoader::open()'s.
  static Result<std::unique_ptr<ResidentLoader>> open(Stream stream, std::shared_ptr<Device> device,
                                                      const DeviceLoaderOptions& options);
  ~ResidentLoader();
  ResidentLoader(const ResidentLoader&) = delete;
  ResidentLoader& operator=(const ResidentLoader&) = delete;

  /// The first one uploads the set: it takes as long as that takes, and `timeout` bounds the wait for each
  /// of its batches.
  Result<std::optional<DeviceBatch>> next(std::chrono::milliseconds timeout);

  // As DeviceLoader's.
  [[nodiscard]] const StreamInfo& info() const { return info_; }
  [[nodiscard]] std::uint64_t length() const { return plan_.length(position_.origin); }
  [[nodiscard]] std::uint64_t epoch() const { return position_.epoch; }
  [[nodiscard]] bool begun() const { return begun_; }
  Result<void> set_epoch(std::uint64_t epoch);
  Result<void> next_epoch();
  [[nodiscard]] Cursor cursor() const;
  [[nodiscard]] State state() const;
  Result<void> load_state(const State& state);
  void set_interrupt(std::function<bool()> interrupt) { interrupt_ = std::move(interrupt); }
  [[nodiscard]] std::uint32_t ready() const;
  [[nodiscard]] std::chrono::nanoseconds waited() const { return waited_; }
  [[nodiscard]] EngineStats stats() const { return engine_.stats(); }
  [[nodiscard]] std::string device_name() const { return engine_.device_name(); }
  [[nodiscard]] StreamHandle copy_stream() const { return device_->copy_stream(); }
  [[nodiscard]] bool forked() const { return fork_.forked(); }

 private:
  ResidentLoader(const Stream& stream, std::shared_ptr<Device> device, const DeviceLoaderOptions& options,
                 std::shared_ptr<const BatchLayout> layout, std::unique_ptr<GatherKernel> kernel);
  Result<void> upload(std::chrono::milliseconds timeout);
  void go_to(const Cursor& cursor);
  /// Launches what comes behind the batches that are queued, as many as one block has room for.
  Result<void> launch(const Cursor& first);
  Result<DeviceBlock> take_block();
  [[nodiscard]] std::unique_ptr<DeviceBatch::State> describe(const Cursor& at, const BatchRows& rows,
                                                             const DeviceBlock& block,
                                                             const GatherJob& job) const;

  // Immutable.
  const client::ForkGuard fork_;
  const DeviceLoaderOptions options_;
  const StreamInfo info_;
  const std::uint32_t rank_, world_size_;
  const EpochPlan plan_;
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<const BatchLayout> layout_;
  const std::uint32_t group_;              ///< batches of a launch
  const std::shared_ptr<BlockPool> pool_;  ///< null: options_.allocate
  const std::unique_ptr<GatherKernel> kernel_;

  Cursor position_;  ///< the next batch that next() will return; the queue begins there
  bool begun_ = false;
  std::deque<DeviceBatch> queue_;
  std::function<bool()> interrupt_;
  std::chrono::nanoseconds waited_{0};
  CopyEngine engine_;
  std::optional<ResidentSet> set_;  ///< ends before the engine
  std::optional<Stream> place_;     ///< of a rank
};

}  // namespace headrace::gpu
