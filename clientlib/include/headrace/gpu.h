// Copies batches to a device. The ring is pinned once, so that copies are asynchronous. Each lease ends when
// its copy has finished. Trainers use DeviceLoader (device_loader.h), which is built on this engine.
//
//   auto engine = headrace::gpu::CopyEngine::open({.device = "cuda:0"}).value();
//   auto image = engine->allocate(bytes).value();
//   auto copy = engine->copy({{{source, image.data(), bytes}}}, keeps_source_alive).value();
//   ...                                      // the trainer does other work
//   copy.wait();
//
// Devices: "cuda:N", or "cuda" for the first one, if Headrace was built with CUDA; "host" always. "host" is
// the CPU backend: it does the same work in host memory, with a thread instead of a copy stream, for tests
// and machines without a GPU.
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

class Device;  // clientlib/gpu/device/device.h: the interface of CUDA devices and the CPU backend

/// The end of a copy. Copyable; all copies of a Completion share its state.
class Completion {
 public:
  /// True once the copy has finished or failed.
  [[nodiscard]] bool done() const;
  /// Blocks until done(): spins for up to `spin`, because a sleeping thread takes longer to wake than a small
  /// copy takes, then sleeps. With a `spin` it may drop the copy's lease itself. Error: kInternal, with the
  /// device's message, if the copy failed.
  Result<void> wait(std::chrono::microseconds spin = std::chrono::microseconds(50)) const;
  /// Sleeps until done(), but for at most `time`. Returns no error if done() is still false.
  Result<void> wait_for(std::chrono::milliseconds time) const;

  struct State;
  explicit Completion(std::shared_ptr<State> state) : state_(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Device memory with a single owner. Must not outlive its engine.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, std::byte* data, std::size_t size)
      : device_(&device), data_(data), size_(size) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  [[nodiscard]] std::byte* data() const { return data_; }  ///< a device pointer: the host must not read it
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  Device* device_;
  std::byte* data_;
  std::size_t size_;
};

/// Bytes in host memory and their destination on the device.
struct Transfer {
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::size_t bytes = 0;
};

/// Device memory with shared ownership.
struct DeviceBlock {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;  ///< any thread may drop the last reference
  /// The owner's memory holds the parts of `count` batches, each of `bytes` bytes, one after the other from
  /// its beginning. This is part `index`.
  std::uint32_t index = 0, count = 1;
};

struct EngineOptions {
  std::string device = "cuda:0";  ///< "cuda:N", "cuda" (the first one) or "host"
  std::size_t pin_chunk =
      std::size_t{2} << 30;  ///< bytes per registration: a single call for a large ring blocks for seconds
  std::function<void(std::string_view)> warn = {};  ///< default: one line on stderr
  /// CUDA: the caller's stream for the copies. It must live as long as the memory that is copied to, because
  /// a stream-aware allocator keeps querying it. 0: the engine creates its own stream.
  StreamHandle copy_stream = 0;
};

struct EngineStats {
  std::uint64_t direct_copies = 0;  ///< read from the ring by DMA
  std::uint64_t staged_copies = 0;  ///< from memory that is not pinned: the driver copies it once more
  std::uint64_t pinned_bytes = 0;
};

class CopyEngine {
 public:
  /// Errors: kEnvironment, which says why the device is not available (no driver, no GPU, built without
  /// CUDA); kInvalidArgument for names other than "cuda", "cuda:N" and "host".
  static Result<std::unique_ptr<CopyEngine>> open(const EngineOptions& options);
  /// An engine for an open device: for tests.
  CopyEngine(std::shared_ptr<Device> device, EngineOptions options);
  ~CopyEngine();  ///< waits for running copies: their leases end before it returns

  /// Pins memory, once per (mapping, owner), then makes it read-only for this process. If the mapping has
  /// grown since the last call, only what was added is pinned. A failure to pin is not an error: it is
  /// reported once through `warn`, and copies from there are slower and counted as staged. `owner` keeps the
  /// memory mapped. The next registration unpins memory that only the engine still owns (the ring of a server
  /// that was restarted), after its copies.
  void register_mapping(std::span<std::byte> mapping, std::shared_ptr<const void> owner);
  /// Waits for running copies, then unpins memory that only the engine still owns, without waiting for the
  /// next registration.
  void release_orphans();

  Result<DeviceBuffer> allocate(std::size_t bytes);

  /// Starts copies. The engine holds `keep`, which keeps the sources alive, until the sources have been read.
  /// After an error no copy is running and `keep` was dropped.
  Result<Completion> copy(std::span<const Transfer> transfers, std::shared_ptr<const void> keep);
  /// The same into one block, with neighboring transfers joined. The engine also holds the block. All
  /// transfers go to [data, data + bytes); the bytes between them are undefined afterwards.
  Result<Completion> copy_into(const DeviceBlock& block, std::span<const Transfer> transfers,
                               std::shared_ptr<const void> keep);

  /// The end of all work that is queued on the device's copy stream so far, including kernels. The engine
  /// holds `keep` until then.
  Result<Completion> queued(std::shared_ptr<const void> keep);

  [[nodiscard]] EngineStats stats() const;  ///< from any thread
  [[nodiscard]] std::string device_name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::gpu
