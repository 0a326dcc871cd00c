#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "clientlib/client/fork_guard.h"
#include "clientlib/gpu/cuda/on_device.h"
#include "clientlib/gpu/cuda/row_kernels.h"
#include "clientlib/gpu/device/device.h"

namespace headrace::gpu {
namespace {

/// A copy of a small batch ends within this: waking from cudaEventSynchronize() would take longer.
constexpr std::chrono::microseconds kSpin{50};

class CudaDevice final : public Device {
 public:
  /// own: the stream ends with this.
  CudaDevice(int ordinal, std::string name, bool registers_read_only, cudaStream_t stream, bool own)
      : ordinal_(ordinal),
        name_(std::move(name)),
        registers_read_only_(registers_read_only),
        stream_(stream),
        own_stream_(own) {}
  ~CudaDevice() override {
    if (fork_.forked()) return;  // the parent's
    const OnDevice here(ordinal_);
    if (here.error() != cudaSuccess) return;  // the context is lost, and with it the stream and its events
    forget(cudaStreamSynchronize(stream_));
    for (const auto& [mark, event] : marks_) forget(cudaEventDestroy(event));
    for (cudaEvent_t event : spare_) forget(cudaEventDestroy(event));
    if (own_stream_) forget(cudaStreamDestroy(stream_));
  }

  /// The device stays this thread's. Going back to another one would make a context there (since CUDA 12),
  /// hundreds of megabytes on the first GPU for each rank. And a capture of the trainer's is not ended by
  /// what this thread calls.
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
    if (error != cudaSuccess && registers_read_only_) {  // a mapping of a server in read-only mode
      (void)cudaGetLastError();
      error = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterReadOnly);
    }
    if (error != cudaSuccess) return fail(taken(error, "cudaHostRegister", ErrorCode::kEnvironment));
    return {};
  }
  void unpin(std::span<std::byte> memory) override {
    const OnDevice here(ordinal_);
    // A call would make a context on whichever device is the thread's; the lost one has no registrations.
    if (here.error() != cudaSuccess) return;
    forget(cudaHostUnregister(memory.data()));
  }

  Result<std::byte*> allocate(std::size_t bytes) override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return fail(entered.error());
    void* memory = nullptr;
    if (const auto error = cudaMalloc(&memory, bytes); error != cudaSuccess)
      return fail(taken(error, fmt::format("cudaMalloc of {} bytes", bytes), ErrorCode::kNotEnoughMemory));
    return static_cast<std::byte*>(memory);
  }
  Result<std::size_t> room() override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return fail(entered.error());
    std::size_t room = 0, all = 0;
    if (const auto error = cudaMemGetInfo(&room, &all); error != cudaSuccess)
      return fail(taken(error, "cudaMemGetInfo"));
    return room;
  }
  void free(std::byte* memory) override {
    const OnDevice here(ordinal_);
    if (here.error() != cudaSuccess) return;  // memory ends with its context, as in unpin()
    forget(cudaFree(memory));
  }

  Result<std::byte*> allocate_staging(std::size_t bytes) override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return fail(entered.error());
    void* memory = nullptr;
    if (const auto error = cudaMallocHost(&memory, bytes); error != cudaSuccess)
      return fail(
          taken(error, fmt::format("cudaMallocHost of {} bytes", bytes), ErrorCode::kNotEnoughMemory));
    return static_cast<std::byte*>(memory);
  }
  void free_staging(std::byte* memory) override {
    const OnDevice here(ordinal_);
    if (here.error() != cudaSuccess) return;  // as in free()
    forget(cudaFreeHost(memory));
  }

  Result<void> copy(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return entered;
    const auto error = cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, stream_);
    if (error != cudaSuccess) return fail(taken(error, "cudaMemcpyAsync"));
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
    (void)cudaGetLastError();  // a query that was too early counts as one
    end(mark);
    if (error != cudaSuccess) return fail(taken(error, "copy to the device"));
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

  void synchronise() override {
    const OnDevice here(ordinal_);
    // An error means that the context is lost, and with it whatever was under way.
    if (here.error() != cudaSuccess) return;
    forget(cudaStreamSynchronize(stream_));
  }
  Result<void> prepare_rows() override {
    const OnDevice here(ordinal_);
    auto error = here.error();
    if (error == cudaSuccess) error = prepare_row_kernels();
    if (error != cudaSuccess)
      return fail(taken(
          error,
          fmt::format("device \"cuda:{}\" cannot run the kernels (built for sm_80 and newer)", ordinal_),
          ErrorCode::kEnvironment));
    return {};
  }
  Result<void> launch(const RowJob& job) override {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return entered;
    if (const auto error = launch_rows(job, stream_); error != cudaSuccess)
      return fail(taken(error, fmt::format("launch of {} rows", job.rows)));
    return {};
  }

 private:
  /// Without the device no call may follow: it would go to whichever device is the thread's.
  [[nodiscard]] Result<void> entry(const OnDevice& here) const {
    if (here.error() == cudaSuccess) return {};
    return fail(taken(here.error(), fmt::format("device \"cuda:{}\" cannot be made current", ordinal_)));
  }
  /// Of a call whose failure has no consequence. Without one the last error may be the trainer's, and stays.
  static void forget(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
  }
  static cudaStream_t stream_of(StreamHandle handle) { return reinterpret_cast<cudaStream_t>(handle); }

  Result<Mark> record_in(cudaStream_t stream) {
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return fail(entered.error());
    cudaEvent_t event = take_spare();
    // BlockingSync: the completion thread sleeps instead of spinning on a core that decodes.
    auto error = event != nullptr
                     ? cudaSuccess
                     : cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming);
    if (error != cudaSuccess) return fail(taken(error, "cudaEventCreate"));
    error = cudaEventRecord(event, stream);
    const std::lock_guard lock(mutex_);
    if (error != cudaSuccess) {
      spare_.push_back(event);
      return fail(taken(error, "cudaEventRecord"));
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
    // The legacy default stream (0) is the current device's, whichever that is.
    const OnDevice here(ordinal_);
    if (auto entered = entry(here); !entered) return entered;
    const std::lock_guard lock(mutex_);  // the event must not be used again before the call
    const auto found = marks_.find(mark);
    if (found == marks_.end()) return {};
    if (const auto error = cudaStreamWaitEvent(stream, found->second, 0); error != cudaSuccess)
      return fail(taken(error, "cudaStreamWaitEvent"));
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

/// Names the driver that is needed. Nothing if there is none at all, which CUDA calls insufficient, too. A
/// CUDA runtime works with every driver of its major version (minor version compatibility), and with newer
/// ones.
std::optional<Error> driver_that_is_too_old(int ordinal) {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) (void)cudaGetLastError();
  if (version == 0) return std::nullopt;
  constexpr int kMajor = CUDART_VERSION / 1000;
  return Error{
      ErrorCode::kEnvironment,
      fmt::format(
          "device \"cuda:{}\" cannot be used: this Headrace was built with CUDA {}, which needs driver {} or "
          "newer; the installed one is for CUDA {}.{}: install a newer driver, or build with an older "
          "CUDA toolkit",
          ordinal, kMajor, kMajor >= 13 ? 580 : 525, version / 1000, version % 1000 / 10)};
}

Result<std::unique_ptr<Device>> open_here(int ordinal, StreamHandle copy_stream) {
  int count = 0;
  if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    if (error == cudaErrorInsufficientDriver)
      if (const auto old = driver_that_is_too_old(ordinal)) return fail(*old);
    return fail(taken(error,
                      fmt::format("device \"cuda:{}\" cannot be used (does nvidia-smi see it? Without a GPU: "
                                  "no device, for batches in host memory, or \"host\", its twin there)",
                                  ordinal),
                      ErrorCode::kEnvironment));
  }
  if (ordinal >= count)
    return fail(
        ErrorCode::kEnvironment,
        fmt::format("device \"cuda:{}\" is not there: this process sees {} CUDA device(s)", ordinal, count));
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

// In a thread of its own, whose device it may change.
Result<std::unique_ptr<Device>> open_cuda_device(int ordinal, StreamHandle copy_stream) {
  return std::async(std::launch::async, [=] { return open_here(ordinal, copy_stream); }).get();
}

}  // namespace headrace::gpu
