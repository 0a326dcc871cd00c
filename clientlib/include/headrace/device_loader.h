// A stream's batches in device memory, prefetched ahead of the loop.
//
//   auto stream = or_throw(client.open(
//       {.stream = "train", .commits = Commits::kByCaller, .for_device = true}));
//   auto loader = or_throw(DeviceLoader::open(std::move(stream), {.engine = {.device = "cuda:0"}}));
//   while (auto batch = or_throw(loader->next())) {
//     or_throw(batch->wait_on(reinterpret_cast<StreamHandle>(my_stream)));
//     step<<<..., my_stream>>>(batch->field("image").value().data, ...);
//   }                          // its memory is reused after the work that my_stream has queued so far
//
// One thread of the loader takes batches from the ring and starts their copies, up to `prefetch` batches
// ahead of next(). Another ends each lease when its copy has finished. Both run even while the loop stalls.
// next() waits until a batch's copy has started; the host never waits for a copy to finish. With `device:
// gpu` a kernel computes the images after their copy (device_image.h). A field's `spec` and bytes are the
// same as if the server had computed it.
//
// Thread safety: DeviceLoader: one thread at a time. DeviceBatch: one thread at a time; any thread may
// destroy it, even after its loader. Fork: same as Stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/client.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

struct DeviceLoaderOptions {
  EngineOptions engine = {};
  /// Batches that are copied to the device, or computed there, before next() is called for them: 1 or more.
  /// With `residence: gpu` small batches are computed up to 16 at a time: up to 15 batches more may be ready.
  std::uint32_t prefetch = 2;
  /// Allocates memory for a batch or, with `residence: gpu`, for up to 16 batches and 8 MiB; next() calls it
  /// in its caller's thread. With `device: gpu` or `residence: gpu` the memory must be aligned to 16 bytes.
  /// The first writes to it are on DeviceLoader::copy_stream(). Default: the loader's own memory. When the
  /// batches in it are destroyed, it is reused after the work that the streams of DeviceBatch::wait_on() have
  /// queued by then.
  std::function<Result<DeviceBlock>(std::size_t bytes)> allocate = {};
  /// For a stream with `residence: gpu`: the first next() uploads its dataset, and batches are computed on
  /// the device. false: batches are fetched through the ring and copied, as for any other stream.
  bool resident = true;
  /// next() calls it during an upload, with the number of uploaded samples and of all samples. Default:
  /// prints a line on stderr every 3 s.
  std::function<void(std::uint64_t samples, std::uint64_t of)> uploading = {};
};

/// One field of a batch on the device.
struct DeviceFieldView {
  const FieldSpec* spec = nullptr;
  std::byte* data = nullptr;        ///< dense, row-major; the caller may write to it
  std::vector<std::int64_t> shape;  ///< as in FieldView
  std::byte* offsets = nullptr;     ///< ragged: rows + 1 int64 values; dense: null
  [[nodiscard]] std::size_t bytes() const;
};

/// A batch in device memory. Move-only. It holds no slot in the ring: the slot is released when the copy has
/// finished.
class DeviceBatch {
 public:
  DeviceBatch(DeviceBatch&&) noexcept;
  DeviceBatch& operator=(DeviceBatch&&) noexcept;
  ~DeviceBatch();

  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] std::uint64_t batch() const;
  [[nodiscard]] const std::vector<RowInfo>& rows() const;  ///< on the host
  [[nodiscard]] const std::vector<FieldSpec>& fields() const;
  [[nodiscard]] Result<DeviceFieldView> field(
      std::string_view name) const;                           ///< kInvalidArgument: no such field
  [[nodiscard]] DeviceFieldView field(std::size_t at) const;  ///< by its index in fields()

  /// Work that is queued on `stream` from now on begins after the copy. The host does not wait, except on the
  /// CPU backend. `stream` must live as long as this batch. Error: kInvalidArgument for cudaStreamPerThread.
  Result<void> wait_on(StreamHandle stream);
  /// The host waits until the copy has finished. Error: kInternal, with the device's message, if it failed.
  /// After wait(), the loader's own memory is freed instead of reused, and freeing waits for the device. For
  /// tests and debugging, not for training loops.
  Result<void> wait() const;

  /// The memory that holds the fields.
  [[nodiscard]] const DeviceBlock& block() const;

  struct State;
  explicit DeviceBatch(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

class DeviceLoader {
 public:
  /// REQUIRES: `stream` was opened with Batches::kShared and Commits::kByCaller.
  /// Errors: those of CopyEngine::open(). For a stream with `residence: gpu` also kNotEnoughMemory if its
  /// dataset does not fit, and kInvalidArgument if the stream was opened with resume_from_server: the server
  /// does not know which batches were consumed on the device.
  static Result<std::unique_ptr<DeviceLoader>> open(Stream stream, const DeviceLoaderOptions& options);
  /// A loader for an open device, which always fetches batches through the ring: for tests.
  DeviceLoader(Stream stream, std::shared_ptr<Device> device, const DeviceLoaderOptions& options);
  ~DeviceLoader();  ///< waits for running copies, then detaches

  /// Same as Stream::next(). Commits, state() and resume_from_server do not count prefetched batches.
  Result<std::optional<DeviceBatch>> next(std::chrono::milliseconds timeout = std::chrono::minutes(10));

  // Same as in Stream, for the loop's position.
  [[nodiscard]] const StreamInfo& info() const;
  [[nodiscard]] std::uint64_t length() const;
  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] bool begun() const;
  Result<void> set_epoch(std::uint64_t epoch);
  Result<void> next_epoch();
  [[nodiscard]] Cursor cursor() const;
  [[nodiscard]] State state() const;
  Result<void> load_state(const State& state);
  void set_interrupt(std::function<bool()> interrupt);
  /// Batches that next() can return without waiting for the server: those prefetched to the device and,
  /// before the first next(), those in the ring.
  [[nodiscard]] std::uint32_t ready() const;
  [[nodiscard]] std::chrono::nanoseconds waited() const;

  [[nodiscard]] EngineStats stats() const;
  [[nodiscard]] std::string device_name() const;
  [[nodiscard]] StreamHandle copy_stream() const;

  struct Source;  // clientlib/gpu/batch_source.h

 private:
  explicit DeviceLoader(std::unique_ptr<Source> source);
  std::unique_ptr<Source> source_;
};

}  // namespace headrace::gpu
