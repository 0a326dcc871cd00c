// The source of a DeviceLoader's batches: the ring (fetched/), or a dataset in GPU memory (resident/). Only
// DeviceLoader calls it, and it first checks that this process is not a fork.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <utility>

#include "clientlib/client/fork_guard.h"
#include "clientlib/gpu/copy/block_pool.h"
#include "clientlib/gpu/device_batch.h"
#include "headrace/device_loader.h"

namespace headrace::gpu {

struct DeviceLoader::Source {
  /// `batches_per_block`: the largest number of batches in a memory block.
  Source(const Stream& stream, std::shared_ptr<Device> to, const DeviceLoaderOptions& given,
         std::uint32_t batches_per_block = 1);
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  virtual Result<std::optional<DeviceBatch>> next(std::chrono::milliseconds timeout) = 0;
  [[nodiscard]] virtual std::uint64_t length() const = 0;
  [[nodiscard]] virtual std::uint64_t epoch() const { return position.epoch; }
  virtual Result<void> set_epoch(std::uint64_t epoch) = 0;
  [[nodiscard]] virtual Cursor cursor() const = 0;
  virtual Result<void> load_state(const State& state) = 0;
  [[nodiscard]] virtual std::uint32_t ready() const = 0;

  /// Memory for `batches` batches, at most `batches_per_block`, from DeviceLoaderOptions::allocate or from
  /// the pool, whose blocks always have room for `batches_per_block`.
  Result<DeviceBlock> take_block(std::uint32_t batches);

  // Immutable.
  const client::ForkGuard fork;
  const DeviceLoaderOptions options;
  const std::shared_ptr<Device> device;
  const std::uint32_t batches_per_block;
  const std::shared_ptr<BlockPool> pool;  ///< null: memory comes from options.allocate
  const StreamInfo info;
  const std::uint32_t world_size;
  const std::shared_ptr<const BatchLayout> layout;

  Cursor position;  ///< the next batch that next() will return
  bool begun = false;
  std::function<bool()> interrupt;
  std::chrono::nanoseconds waited{0};
  CopyEngine engine;
};

/// Batches that are fetched from the ring of `stream`. Errors: those of plan_fields().
Result<std::unique_ptr<DeviceLoader::Source>> fetch_batches(Stream stream, std::shared_ptr<Device> device,
                                                            const DeviceLoaderOptions& options);
/// Batches that are computed from a dataset, which is uploaded once. Errors: see DeviceLoader::open().
Result<std::unique_ptr<DeviceLoader::Source>> make_resident_batches(Stream stream,
                                                                    std::shared_ptr<Device> device,
                                                                    const DeviceLoaderOptions& options);

}  // namespace headrace::gpu
