#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <future>
#include <mutex>
#include <unordered_map>

#include "clientlib/client/fork_guard.h"
#include "clientlib/gpu/cuda/on_device.h"
#include "clientlib/gpu/device.h"
#include "clientlib/gpu/transform/kernels.h"

namespace headrace::gpu {
namespace {

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
    // Handles know their device: another one's context is not to be made by asking for it here.
    (void)cudaStreamSynchronize(stream_);
    for (const auto& [mark, event] : marks_) (void)cudaEventDestroy(event);
    if (own_stream_) (void)cudaStreamDestroy(stream_);
    (void)cudaGetLastError();
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
    if (const auto error = cudaHostUnregister(memory.data()); error != cudaSuccess) (void)cudaGetLastError();
  }

  Result<std::byte*> allocate(std::size_t bytes) override {
    const OnDevice here(ordinal_);
    void* memory = nullptr;
    if (const auto error = cudaMalloc(&memory, bytes); error != cudaSuccess)
      return fail(taken(error, fmt::format("cudaMalloc of {} bytes", bytes), ErrorCode::kNotEnoughMemory));
    return static_cast<std::byte*>(memory);
  }
  Result<std::size_t> room() override {
    const OnDevice here(ordinal_);
    std::size_t room = 0, all = 0;
    if (const auto error = cudaMemGetInfo(&room, &all); error != cudaSuccess)
      return fail(taken(error, "cudaMemGetInfo"));
    return room;
  }
  void free(std::byte* memory) override {
    const OnDevice here(ordinal_);
    if (cudaFree(memory) != cudaSuccess) (void)cudaGetLastError();
  }

  Result<std::byte*> allocate_staging(std::size_t bytes) override {
    const OnDevice here(ordinal_);
    void* memory = nullptr;
    if (const auto error = cudaMallocHost(&memory, bytes); error != cudaSuccess)
      return fail(
          taken(error, fmt::format("cudaMallocHost of {} bytes", bytes), ErrorCode::kNotEnoughMemory));
    return static_cast<std::byte*>(memory);
  }
  void free_staging(std::byte* memory) override {
    const OnDevice here(ordinal_);
    if (cudaFreeHost(memory) != cudaSuccess) (void)cudaGetLastError();
  }

  Result<void> copy(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    const OnDevice here(ordinal_);
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
    const auto error = cudaEventSynchronize(event);
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
    if (cudaStreamSynchronize(stream_) != cudaSuccess) (void)cudaGetLastError();
  }
  Result<std::unique_ptr<TransformKernels>> open_transform() override {
    return open_cuda_transform(ordinal_);
  }

 private:
  static cudaStream_t stream_of(StreamHandle handle) { return reinterpret_cast<cudaStream_t>(handle); }

  Result<Mark> record_in(cudaStream_t stream) {
    const OnDevice here(ordinal_);
    cudaEvent_t event = nullptr;
    // BlockingSync: the completion thread sleeps instead of spinning on a core that decodes.
    auto error = cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming);
    if (error != cudaSuccess) return fail(taken(error, "cudaEventCreate"));
    error = cudaEventRecord(event, stream);
    if (error != cudaSuccess) {
      (void)cudaEventDestroy(event);
      return fail(taken(error, "cudaEventRecord"));
    }
    const std::lock_guard lock(mutex_);
    marks_.emplace(++last_mark_, event);
    return last_mark_;
  }

  Result<void> hold(cudaStream_t stream, Mark mark) {
    const std::lock_guard lock(mutex_);  // the event must outlive the call
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
    (void)cudaEventDestroy(found->second);
    marks_.erase(found);
  }

  client::ForkGuard fork_;
  int ordinal_;
  std::string name_;
  bool registers_read_only_;
  cudaStream_t stream_;
  bool own_stream_;
  std::mutex mutex_;
  std::unordered_map<Mark, cudaEvent_t> marks_;  // guarded by mutex_
  Mark last_mark_ = 0;                           // guarded by mutex_
};

Result<std::unique_ptr<Device>> open_here(int ordinal, StreamHandle copy_stream) {
  int count = 0;
  if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return fail(taken(error,
                      fmt::format("device \"cuda:{}\" cannot be used (does nvidia-smi see it? Without a GPU: "
                                  "no device, for batches in host memory, or \"host\", its twin there)",
                                  ordinal),
                      ErrorCode::kEnvironment));
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
