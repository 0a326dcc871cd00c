// The interface of a device: everything that differs between CUDA (cuda/cuda_device.cpp) and the CPU backend
// (host/host_device.cpp), which does the same work in host memory under the device name "host". CMake chooses
// the files; nothing outside cuda/ includes a CUDA header.
//
// Thread safety: `copy`, `launch`, `record` and `hold_copies`: one thread at a time. The rest: any thread,
// also at the same time; but a mark is waited for only once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "headrace/error.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

/// A point in the device's copy stream (recorded by record(), ended by wait()) or in a consumer's stream
/// (recorded by record_on(), ended by hold_copies()).
using Mark = std::uint64_t;

struct RowJob;  // clientlib/gpu/rows/job.h

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  /// Each library thread that uses the device calls this once, before anything else.
  virtual void enter_thread() {}

  /// Makes [memory] readable by DMA. A failure leaves no sticky error on the device.
  virtual Result<void> pin(std::span<std::byte> memory) = 0;
  virtual void unpin(std::span<std::byte> memory) = 0;

  virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
  /// Bytes that can be allocated now, as far as the device can tell.
  virtual Result<std::size_t> room() = 0;
  /// Waits for the device's work that still uses it.
  virtual void free(std::byte* memory) = 0;

  /// Queues a copy. `source` must not change until a later mark has been waited for. Pinned memory is read by
  /// DMA. For other memory the call waits while the driver copies it to pinned buffers, and may wait for
  /// earlier work on the copy stream.
  virtual Result<void> copy(std::byte* destination, const std::byte* source, std::size_t bytes) = 0;
  virtual Result<Mark> record() = 0;
  /// Blocks until all work that was queued before the mark has finished.
  virtual Result<void> wait(Mark mark) = 0;
  /// The stream of the copies, for allocators that must know which stream writes their memory first.
  [[nodiscard]] virtual StreamHandle copy_stream() const = 0;
  /// Work that is queued on `stream` from now on begins after the mark; an ended mark holds nothing. The host
  /// does not wait, except on the CPU backend, which has no streams.
  virtual Result<void> hold_stream(StreamHandle stream, Mark mark) = 0;
  virtual Result<Mark> record_on(StreamHandle stream) = 0;
  /// Copies that are queued from now on begin after the mark, which comes from record_on(). Ends the mark.
  virtual Result<void> hold_copies(Mark mark) = 0;
  /// Ends a mark that will not be waited for.
  virtual void drop(Mark mark) = 0;
  /// Blocks until all queued work has finished: used when no mark could be recorded.
  virtual void synchronize() = 0;
  /// Checks that launch() works here. Error: kEnvironment, which says why it does not.
  virtual Result<void> prepare_rows() = 0;
  /// How many of the job's thread blocks can run at once, for RowJob::blocks_at_once. 1 if the device cannot
  /// say.
  virtual std::int32_t blocks_at_once(const RowJob& job) = 0;
  /// Queues the kernel (rows/kernel.h), which runs after the copies queued so far. plan_rows() has checked
  /// the job.
  virtual Result<void> launch(const RowJob& job) = 0;
};

/// `name`: "cuda:N", "cuda" (the first one) or "host". See CopyEngine::open and EngineOptions::copy_stream.
Result<std::unique_ptr<Device>> open_device(std::string_view name, StreamHandle copy_stream = 0);
Result<std::unique_ptr<Device>> open_cuda_device(int ordinal, StreamHandle copy_stream);
std::unique_ptr<Device> open_host_device();

}  // namespace headrace::gpu
