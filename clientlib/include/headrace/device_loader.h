// A stream's batches in device memory, copied ahead of the loop.
//
//   auto stream = or_throw(client.open(
//       {.stream = "train", .commits = Commits::kByCaller, .for_device = true}));
//   auto loader = or_throw(DeviceLoader::open(std::move(stream), {.engine = {.device = "cuda:0"}}));
//   while (auto batch = or_throw(loader->next())) {
//     or_throw(batch->wait_on(reinterpret_cast<StreamHandle>(my_stream)));
//     step<<<..., my_stream>>>(batch->field("image").value().data, ...);
//   }                                        // its memory is used again behind what my_stream has queued
//
// A thread of the loader takes batches from the ring and starts their copies, up to `prefetch` of them ahead
// of next(); another ends each lease when its copy has ended: both also while the loop stalls. next() waits
// for a batch whose copy has begun; the host never waits for a copy. Images that the server leaves to the
// device (`device: gpu`) are finished behind their copy (device_image.h): `spec` and bytes of a field are
// the same wherever they are made.
//
// Thread safety: DeviceLoader: one thread at a time. DeviceBatch: one thread at a time, any thread may
// destroy it, also after its loader is gone. Fork: as Stream's.
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
  /// Batches that are on the device, or on their way, before next() asks: 1 or more.
  std::uint32_t prefetch = 2;
  /// Where batches go; next() asks for it, in its caller's thread. Aligned to 16 bytes where rows are made on
  /// the device (`device: gpu`, `residence: gpu`). What it gives is first written on
  /// DeviceLoader::copy_stream(). Default: memory of the loader's own, used again behind what the streams of
  /// DeviceBatch::wait_on() have queued by the batch's end.
  std::function<Result<DeviceBlock>(std::size_t bytes)> allocate = {};
  /// Of a stream with `residence: gpu`: its set is uploaded by the first next(), and batches are made on the
  /// device. false: they are copied there, as any stream's.
  bool resident = true;
  /// Called by next() while it uploads, with the samples that are there, of how many. Default: a line on
  /// stderr every few seconds.
  std::function<void(std::uint64_t samples, std::uint64_t of)> uploading = {};
};

/// One field of a batch on the device.
struct DeviceFieldView {
  const FieldSpec* spec = nullptr;
  std::byte* data = nullptr;        ///< dense, row-major; this batch's own, to write to as well
  std::vector<std::int64_t> shape;  ///< as FieldView's
  std::byte* offsets = nullptr;     ///< ragged: rows + 1 int64 values; dense: null
  [[nodiscard]] std::size_t bytes() const;
};

/// A batch in device memory. Move-only. Its slot in the ring is none of its business: that is free when the
/// copy has ended.
class DeviceBatch {
 public:
  DeviceBatch(DeviceBatch&&) noexcept;
  DeviceBatch& operator=(DeviceBatch&&) noexcept;
  ~DeviceBatch();

  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] std::uint64_t batch() const;
  [[nodiscard]] const std::vector<RowInfo>& rows() const;  ///< on the host
  [[nodiscard]] const std::vector<FieldSpec>& fields() const;
  [[nodiscard]] Result<DeviceFieldView> field(std::string_view name) const;  ///< kInvalidArgument: not there
  [[nodiscard]] DeviceFieldView field(std::size_t at) const;                 ///< by its place in fields()

  /// What is queued on `stream` from now on begins after the copy; the host does not wait (the twin's does).
  /// `stream` must live as long as this batch. kInvalidArgument: cudaStreamPerThread.
  Result<void> wait_on(StreamHandle stream);
  /// The host waits for the copy's end; kInternal with the device's words if it failed. The loader's memory
  /// is not used again after that, but freed, which waits for the device: for tests and for looking, not for
  /// loops.
  Result<void> wait() const;

  /// The memory that the fields lie in.
  [[nodiscard]] const DeviceBlock& block() const;

  struct State;
  explicit DeviceBatch(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

class DeviceLoader {
 public:
  /// REQUIRES: `stream` was opened with Batches::kShared and Commits::kByCaller.
  /// Errors are CopyEngine::open()'s; of a stream with `residence: gpu` also kNotEnoughMemory, if its set
  /// does not fit, and kInvalidArgument for one that was opened with resume_from_server: the server hears
  /// nothing of batches that are made on the device.
  static Result<std::unique_ptr<DeviceLoader>> open(Stream stream, const DeviceLoaderOptions& options);
  /// The same over a given device, always through the ring: for tests.
  DeviceLoader(Stream stream, std::shared_ptr<Device> device, const DeviceLoaderOptions& options);
  ~DeviceLoader();  ///< waits for the copies under way, ends the attachment

  /// As Stream::next(). Batches that were taken ahead count as not returned: for commits, state() and
  /// resume_from_server.
  Result<std::optional<DeviceBatch>> next(std::chrono::milliseconds timeout = std::chrono::minutes(10));

  // As Stream's, of the loop's place.
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
  /// Batches that next() would give without waiting for the server: on the device or on their way there, and,
  /// before the first next(), in the ring.
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
