// Batches to a device: pinned once, copied asynchronously, the lease ended by the copy itself.
//
//   auto engine = headrace::gpu::CopyEngine::open({.device = "cuda:0"}).value();
//   auto image = engine->allocate(bytes).value();
//   auto copy = engine->copy({{{source, image.data(), bytes}}}, keeps_source_alive).value();
//   ...                                      // the trainer goes on
//   copy.wait();
//
// Devices: "cuda:N" where Headrace was built with CUDA; "host" everywhere: the twin with the same semantics
// (copies run on a thread of their own), for machines without a GPU and for tests.
//
// Thread safety: CopyEngine: one thread at a time. Completion: any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/client.h"
#include "headrace/error.h"
#include "headrace/stream_handle.h"

namespace headrace::gpu {

class Device;  // clientlib/gpu/device/device.h: the seam between CUDA and its host twin

/// How a copy ends. Copyable; all copies speak of the same one.
class Completion {
 public:
  /// True once the bytes are in place or the copy failed.
  [[nodiscard]] bool done() const;
  /// Blocks (without spinning) until then; kInternal with the device's words if the copy failed.
  Result<void> wait() const;
  /// The same, at most so long; then done() is still false, and nothing was said of an error.
  Result<void> wait_for(std::chrono::milliseconds time) const;

  struct State;
  explicit Completion(std::shared_ptr<State> state) : state_(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Device memory with one owner. Must not outlive its engine.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, std::byte* data, std::size_t size)
      : device_(&device), data_(data), size_(size) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  [[nodiscard]] std::byte* data() const { return data_; }  ///< a device pointer: not to be read on the host
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  Device* device_;
  std::byte* data_;
  std::size_t size_;
};

/// Host bytes and where on the device they go.
struct Transfer {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::size_t bytes = 0;
};

/// Device memory that is shared by whoever uses it.
struct DeviceBlock {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;  ///< dropped when nobody uses it any more, by any thread
};

struct EngineOptions {
  std::string device = "cuda:0";  ///< "cuda:N" or "host"
  std::size_t pin_chunk =
      std::size_t{2} << 30;  ///< bytes registered at a time: one call over a large ring stalls for seconds
  std::function<void(std::string_view)> warn = {};  ///< default: one line on stderr
  /// CUDA: the stream of the copies, the caller's, which must live as long as what is copied to (an allocator
  /// that knows streams goes on asking about it). 0: one of the engine's own.
  StreamHandle copy_stream = 0;
};

struct EngineStats {
  std::uint64_t direct_copies = 0;  ///< read by DMA from the ring
  std::uint64_t staged_copies = 0;  ///< through a private pinned buffer, because the ring could not be pinned
  std::uint64_t pinned_bytes = 0;
};

class CopyEngine {
 public:
  /// kEnvironment says why there is no such device (no driver, no GPU, built without CUDA); kInvalidArgument
  /// for other names than "cuda", "cuda:N" and "host".
  static Result<std::unique_ptr<CopyEngine>> open(const EngineOptions& options);
  /// The same over a given device: for tests.
  CopyEngine(std::shared_ptr<Device> device, EngineOptions options);
  ~CopyEngine();  ///< waits for the copies under way: their leases end before it returns

  /// Pins memory, once per (mapping, owner), then makes it read-only for this process. A refusal is no error:
  /// it is reported once through `warn`, counted, and copies are staged. `owner` keeps the memory mapped;
  /// what nobody but the engine owns any more (the ring of a server that was restarted) is unpinned by the
  /// next registration, after its copies.
  void register_mapping(std::span<std::byte> mapping, std::shared_ptr<const void> owner);
  /// Unpins now what nobody but the engine owns any more; waits for the copies under way.
  void release_orphans();

  Result<DeviceBuffer> allocate(std::size_t bytes);

  /// Starts copying; the engine keeps `keep`, which keeps the sources alive, until the bytes are out of them.
  /// After an error nothing was started and `keep` was dropped.
  Result<Completion> copy(std::span<const Transfer> transfers, std::shared_ptr<const void> keep);
  /// The same into one block, in as few copies as pay; the engine keeps the block, too. All transfers go to
  /// [data, data + bytes), whose bytes between them are undefined afterwards.
  Result<Completion> copy_into(const DeviceBlock& block, std::span<const Transfer> transfers,
                               std::shared_ptr<const void> keep);

  /// How all ends that is queued on the device's copy stream by now, kernels of others among it. `keep` is
  /// kept until then.
  Result<Completion> queued(std::shared_ptr<const void> keep);

  [[nodiscard]] EngineStats stats() const;  ///< from any thread
  [[nodiscard]] std::string device_name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::gpu
