#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "clientlib/client/fork_guard.h"
#include "clientlib/gpu/cuda/on_device.h"
#include "clientlib/gpu/cuda/row_kernels.h"
#include "clientlib/gpu/device/device.h"

namespace headrace::gpu {
namespace {

/// Time to poll before blocking: a small batch's copy ends sooner than cudaEventSynchronize() wakes.
constexpr std::chrono::microseconds kSpin{50};

class CudaDevice final : public Device {
 public:
  /// own: the destructor destroys the stream.
  CudaDevice(int ordinal, std::string name, bool registers_read_only, cudaStream_t stream, bool own)
      : ordinal_(ordinal),
        name_(std::move(name)),
        registers_read_only_(registers_read_only),
        stream_(stream),
        own_stream_(own) {}
  ~CudaDevice() override {
    if (fork_.forked()) return;  // the parent owns all of this
    const OnDevice here(ordinal_);
    if (here.error() != cudaSuccess) return;  // the context is lost, and the stream and events with it
    forget(cudaStreamSynchronize(stream_));
    for (const auto& [mark, event] : marks_) forget(cudaEventDestroy(event));
    for (cudaEvent_t event : spare_) forget(cudaEventDestroy(event));
    if (own_stream_) forget(cudaStreamDestroy(stream_));
  }

  /// Makes the device this thread's current one for good. Restoring another one would create a context there
  /// (since CUDA 12): hundreds of megabytes on the first GPU for each rank. The relaxed mode keeps this
  /// thread's calls from ending the trainer's stream capture.
  void enter_thread() override {
    (void)cudaSetDevice(ordinal_);
    auto mode = cudaStreamCaptureModeRelaxed;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    (void)cudaGetLastError();
  }

  [[nodiscard]] std::string name() const override { return fmt::format("cuda:{} ({})", ordinal_, name_); }

  Result<void> pin(std::span<std::byte> memory) override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return entered;
    cudaError_t error = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault);
    if (error != cudaSuccess && registers_read_only_) {  // the ring of a server in read-only mode
      (void)cudaGetLastError();
      error = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterReadOnly);
    }
    if (error != cudaSuccess)
      return fail(failed(error, fmt::format("pin {} bytes of host memory (cudaHostRegister)", memory.size()),
                         ErrorCode::kEnvironment));
    return {};
  }
  void unpin(std::span<std::byte> memory) override {
    const OnDevice here(ordinal_);
    // The context is lost, and its registrations with it. A call would use the thread's current device, and
    // create a context there.
    if (here.error() != cudaSuccess) return;
    forget(cudaHostUnregister(memory.data()));
  }

  Result<std::byte*> allocate(std::size_t bytes) override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return fail(entered.error());
    void* memory = nullptr;
    if (const auto error = cudaMalloc(&memory, bytes); error != cudaSuccess)
      return fail(failed(error, fmt::format("allocate {} bytes of GPU memory (cudaMalloc)", bytes),
                         ErrorCode::kNotEnoughMemory));
    return static_cast<std::byte*>(memory);
  }
  Result<std::size_t> room() override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return fail(entered.error());
    std::size_t room = 0, all = 0;
    if (const auto error = cudaMemGetInfo(&room, &all); error != cudaSuccess)
      return fail(failed(error, "query its free memory (cudaMemGetInfo)"));
    return room;
  }
  void free(std::byte* memory) override {
    const OnDevice here(ordinal_);
    if (here.error() != cudaSuccess) return;  // the memory is lost with the context; see unpin()
    forget(cudaFree(memory));
  }

  Result<void> copy(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return entered;
    const auto error = cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, stream_);
    if (error != cudaSuccess)
      return fail(failed(error, fmt::format("start a copy of {} bytes (cudaMemcpyAsync)", bytes)));
    return {};
  }

  Result<Mark> record() override { return record_in(stream_); }
  Result<Mark> record_on(StreamHandle stream) override { return record_in(stream_of(stream)); }

  Result<void> wait(Mark mark) override {
    cudaEvent_t event = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = marks_.find(mark);
      if (found == marks_.end()) return {};
      event = found->second;  // stays in the table: hold_stream() may still ask for it
    }
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) {
      end(mark);
      return entered;
    }
    const auto give_up = std::chrono::steady_clock::now() + kSpin;
    auto error = cudaEventQuery(event);
    while (error == cudaErrorNotReady && std::chrono::steady_clock::now() < give_up)
      error = cudaEventQuery(event);
    if (error == cudaErrorNotReady) error = cudaEventSynchronize(event);
    (void)cudaGetLastError();  // cudaErrorNotReady stays as the last error
    end(mark);
    if (error != cudaSuccess) return fail(failed(error, "finish the queued copies and kernels"));
    return {};
  }

  [[nodiscard]] StreamHandle copy_stream() const override { return reinterpret_cast<StreamHandle>(stream_); }

  Result<void> hold_stream(StreamHandle stream, Mark mark) override { return hold(stream_of(stream), mark); }

  Result<void> hold_copies(Mark mark) override {
    auto held = hold(stream_, mark);
    end(mark);
    return held;
  }
  void drop(Mark mark) override { end(mark); }

  void synchronize() override {
    const OnDevice here(ordinal_);
    // An error means that the context is lost, and all queued work with it.
    if (here.error() != cudaSuccess) return;
    forget(cudaStreamSynchronize(stream_));
  }
  Result<void> prepare_rows() override {
    const OnDevice here(ordinal_);
    auto error = here.error();
    if (error == cudaSuccess) error = prepare_row_kernels();
    if (error != cudaSuccess)
      return fail(
          failed(error, "run Headrace's kernels (built for sm_80 and newer)", ErrorCode::kEnvironment));
    return {};
  }
  std::int32_t blocks_at_once(const RowJob& job) override {
    const OnDevice here(ordinal_);
    std::int32_t blocks = 0;
    if (here.error() == cudaSuccess) forget(row_blocks_at_once(job, ordinal_, blocks));
    return std::max(blocks, 1);
  }
  Result<void> launch(const RowJob& job) override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return entered;
    if (const auto error = launch_rows(job, stream_); error != cudaSuccess)
      return fail(failed(error, fmt::format("launch the kernel for {} rows", job.rows)));
    return {};
  }

 private:
  /// Fails if the device could not be made current: the next CUDA call would use another device.
  [[nodiscard]] Result<void> entry(const OnDevice& here) const {
    if (here.error() == cudaSuccess) return {};
    return fail(failed(here.error(), "be made current for this thread (cudaSetDevice)"));
  }
  /// Ignores a call's error, and clears it as CUDA's last error. After a success the last error may be the
  /// trainer's, so it is kept.
  static void forget(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
  }
  static cudaStream_t stream_of(StreamHandle handle) { return reinterpret_cast<cudaStream_t>(handle); }

  [[nodiscard]] Error failed(cudaError_t error, std::string_view doing,
                             ErrorCode code = ErrorCode::kInternal) const {
    return taken(error, fmt::format("device \"cuda:{}\" cannot {}", ordinal_, doing), code);
  }

  Result<Mark> record_in(cudaStream_t stream) {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return fail(entered.error());
    cudaEvent_t event = take_spare();
    // BlockingSync: the completion thread sleeps instead of spinning on a core that could decode.
    auto error = event != nullptr
                     ? cudaSuccess
                     : cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming);
    if (error != cudaSuccess) return fail(failed(error, "create an event (cudaEventCreate)"));
    error = cudaEventRecord(event, stream);
    const std::lock_guard lock(mutex_);
    if (error != cudaSuccess) {
      spare_.push_back(event);
      return fail(failed(error, "record an event (cudaEventRecord)"));
    }
    marks_.emplace(++last_mark_, event);
    return last_mark_;
  }

  cudaEvent_t take_spare() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return nullptr;
    cudaEvent_t event = spare_.back();
    spare_.pop_back();
    return event;
  }

  Result<void> hold(cudaStream_t stream, Mark mark) {
    // The legacy default stream (0) belongs to the device that is current, so make that this one.
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return entered;
    const std::lock_guard lock(mutex_);  // the event must not be reused before the call
    const auto found = marks_.find(mark);
    if (found == marks_.end()) return {};
    if (const auto error = cudaStreamWaitEvent(stream, found->second, 0); error != cudaSuccess)
      return fail(failed(error, "make a stream wait for an event (cudaStreamWaitEvent)"));
    return {};
  }

  void end(Mark mark) {
    const std::lock_guard lock(mutex_);
    const auto found = marks_.find(mark);
    if (found == marks_.end()) return;
    spare_.push_back(found->second);
    marks_.erase(found);
  }

  client::ForkGuard fork_;
  int ordinal_;
  std::string name_;
  bool registers_read_only_;
  cudaStream_t stream_;
  bool own_stream_;
  std::mutex mutex_;
  std::unordered_map<Mark, cudaEvent_t> marks_;  // guarded by mutex_, as are the next two
  std::vector<cudaEvent_t> spare_;               // events of marks that have ended
  Mark last_mark_ = 0;
};

/// An error that names the required driver. Nothing if no driver is installed, which CUDA reports by the same
/// code. A CUDA runtime works with every driver of its major version (minor version compatibility) and newer.
std::optional<Error> driver_that_is_too_old(int ordinal) {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) (void)cudaGetLastError();
  if (version == 0) return std::nullopt;
  constexpr int kMajor = CUDART_VERSION / 1000;
  return Error{
      ErrorCode::kEnvironment,
      fmt::format(
          "device \"cuda:{}\" cannot be used: this Headrace was built with CUDA {}, which needs driver {} or "
          "newer; the installed driver supports CUDA {}.{}: install a newer driver, or build with an older "
          "CUDA toolkit",
          ordinal, kMajor, kMajor >= 13 ? 580 : 525, version / 1000, version % 1000 / 10)};
}

Result<std::unique_ptr<Device>> open_here(int ordinal, StreamHandle copy_stream) {
  int count = 0;
  if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    if (error == cudaErrorInsufficientDriver)
      if (const auto old = driver_that_is_too_old(ordinal)) return fail(*old);
    return fail(taken(error,
                      fmt::format("device \"cuda:{}\" cannot be used (does nvidia-smi show it? On a machine "
                                  "without a GPU, leave the device out for batches in host memory, or give "
                                  "\"host\", the CPU backend)",
                                  ordinal),
                      ErrorCode::kEnvironment));
  }
  if (ordinal >= count)
    return fail(
        ErrorCode::kEnvironment,
        fmt::format("device \"cuda:{}\" does not exist: this process sees {} CUDA device(s), numbered from 0 "
                    "(CUDA_VISIBLE_DEVICES may hide others)",
                    ordinal, count));
  cudaDeviceProp properties{};
  auto error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, ordinal);
  int read_only = 0;
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&read_only, cudaDevAttrHostRegisterReadOnlySupported, ordinal);
  auto* stream = reinterpret_cast<cudaStream_t>(copy_stream);
  if (error == cudaSuccess && stream == nullptr)
    error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess)
    return fail(
        taken(error, fmt::format("device \"cuda:{}\" cannot be opened", ordinal), ErrorCode::kEnvironment));
  return std::make_unique<CudaDevice>(ordinal, properties.name, read_only != 0, stream, copy_stream == 0);
}

}  // namespace

// In a new thread, so that the caller's current device stays as it is.
Result<std::unique_ptr<Device>> open_cuda_device(int ordinal, StreamHandle copy_stream) {
  return std::async(std::launch::async, [=] { return open_here(ordinal, copy_stream); }).get();
}

}  // namespace headrace::gpu
