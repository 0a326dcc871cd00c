// The seam: all that differs between CUDA (cuda/cuda_device.cpp) and the host twin (host/host_device.cpp).
// CMake chooses the files; nothing outside cuda/ includes a CUDA header.
//
// Thread safety: `copy`, `launch`, `record` and `hold_copies` by one thread at a time; `wait` by one other
// thread at the same time; the rest by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "headrace/error.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

/// A point in the device's copy stream (from record() to wait(), which ends it) or in a consumer's (from
/// record_on() to hold_copies()).
using Mark = std::uint64_t;

struct RowJob;  // clientlib/gpu/rows/job.h

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  /// Called once, first, by each thread of the library's own that will work with the device.
  virtual void enter_thread() {}

  /// Makes [memory] readable by DMA. A refusal leaves no sticky error behind on the device.
  virtual Result<void> pin(std::span<std::byte> memory) = 0;
  virtual void unpin(std::span<std::byte> memory) = 0;

  virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
  /// Bytes that can be allocated now, as far as the device can tell.
  virtual Result<std::size_t> room() = 0;
  /// Waits for whatever on the device still uses it.
  virtual void free(std::byte* memory) = 0;
  /// Host memory that is always fit for DMA.
  virtual Result<std::byte*> allocate_staging(std::size_t bytes) = 0;
  virtual void free_staging(std::byte* memory) = 0;

  /// Queues a copy; `source` is pinned or staging memory and stays as it is until a later mark was waited
  /// for.
  virtual Result<void> copy(std::byte* destination, const std::byte* source, std::size_t bytes) = 0;
  virtual Result<Mark> record() = 0;
  /// Blocks until everything queued before the mark has been copied.
  virtual Result<void> wait(Mark mark) = 0;
  /// Where copies are queued, for allocators that must know where memory is written first.
  [[nodiscard]] virtual StreamHandle copy_stream() const = 0;
  /// What is queued on `stream` from now on begins after the mark; one that has ended holds nothing. The host
  /// goes on (but for the twin, which knows no streams).
  virtual Result<void> hold_stream(StreamHandle stream, Mark mark) = 0;
  virtual Result<Mark> record_on(StreamHandle stream) = 0;
  /// Copies that are queued from now on begin after the mark of record_on(), which ends.
  virtual Result<void> hold_copies(Mark mark) = 0;
  /// Ends a mark that nobody waits for any more.
  virtual void drop(Mark mark) = 0;
  /// Blocks until nothing that was queued is under way any more: for when no mark could be recorded.
  virtual void synchronise() = 0;
  /// Whether launch() can work here. kEnvironment says why not.
  virtual Result<void> prepare_rows() = 0;
  /// Queues the kernel (rows/kernel.h) behind the copies that were queued before. The job was checked by
  /// plan_rows().
  virtual Result<void> launch(const RowJob& job) = 0;
};

/// "cuda:N", "cuda" (the first) or "host"; see CopyEngine::open and EngineOptions::copy_stream.
Result<std::unique_ptr<Device>> open_device(std::string_view name, StreamHandle copy_stream = 0);
Result<std::unique_ptr<Device>> open_cuda_device(int ordinal, StreamHandle copy_stream);
std::unique_ptr<Device> open_host_device();

}  // namespace headrace::gpu
