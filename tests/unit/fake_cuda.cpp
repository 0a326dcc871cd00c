#include "tests/unit/fake_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "clientlib/gpu/cuda/row_kernels.h"

namespace headrace::gpu {
namespace {

thread_local std::vector<int> stack{0};  // the thread's device, and what was pushed on it

cudaError_t note(const char* name) {
  FakeCuda& fake = fake_cuda();
  const std::lock_guard lock(fake.mutex);
  fake.calls.push_back({name, stack.back()});
  if (fake.fails != name) return cudaSuccess;
  fake.last_error = cudaErrorUnknown;
  return cudaErrorUnknown;
}

template <class T>
T handle_of(std::size_t number) {
  return reinterpret_cast<T>(number + 16);
}

CUresult retain(CUcontext* context, CUdevice device) {
  const std::lock_guard lock(fake_cuda().mutex);
  fake_cuda().contexts.insert(device);
  *context = handle_of<CUcontext>(static_cast<std::size_t>(device));
  return CUDA_SUCCESS;
}
CUresult push(CUcontext context) {
  if (fake_cuda().lost) return CUDA_ERROR_UNKNOWN;
  stack.push_back(static_cast<int>(reinterpret_cast<std::size_t>(context) - 16));
  return CUDA_SUCCESS;
}
CUresult pop(CUcontext* context) {
  *context = handle_of<CUcontext>(static_cast<std::size_t>(stack.back()));
  stack.pop_back();
  return CUDA_SUCCESS;
}

}  // namespace

FakeCuda& fake_cuda() {
  static FakeCuda fake;
  return fake;
}

void reset_fake_cuda() {
  FakeCuda& fake = fake_cuda();
  const std::lock_guard lock(fake.mutex);
  fake.devices = 2;
  fake.driver_version = 13000;
  fake.old_driver = false;
  fake.lost = false;
  fake.fails.clear();
  fake.not_ready = 0;
  fake.calls.clear();
  fake.contexts.clear();
  fake.events = 0;
  fake.last_error = 0;
  stack.assign(1, 0);
}

int current_device() {
  return stack.back();
}

cudaError_t prepare_row_kernels() {
  return note("prepare_row_kernels");
}
cudaError_t row_blocks_at_once(const RowJob&, int, std::int32_t& blocks) {
  blocks = 264;
  return note("row_blocks_at_once");
}
cudaError_t launch_rows(const RowJob&, cudaStream_t) {
  return note("launch_rows");
}

}  // namespace headrace::gpu

using headrace::gpu::fake_cuda;
using headrace::gpu::note;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = headrace::gpu::current_device();
  return cudaSuccess;
}
// Since CUDA 12 it makes the device's context.
cudaError_t cudaSetDevice(int device) {
  const std::lock_guard lock(fake_cuda().mutex);
  if (fake_cuda().lost) {
    fake_cuda().last_error = cudaErrorUnknown;
    return cudaErrorUnknown;
  }
  fake_cuda().contexts.insert(device);
  headrace::gpu::stack.back() = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_cuda().devices;
  return fake_cuda().old_driver ? cudaErrorInsufficientDriver : cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = fake_cuda().driver_version;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strncpy(properties->name, "Fake", sizeof properties->name);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(std::exchange(fake_cuda().last_error, 0));
}
const char* cudaGetErrorString(cudaError_t) {
  return "made up";
}
const char* cudaGetErrorName(cudaError_t) {
  return "fakeError";
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  *stream = headrace::gpu::handle_of<cudaStream_t>(1000);
  return note("cudaStreamCreate");
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return note("cudaStreamSynchronize");
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return note("cudaStreamDestroy");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) {
  return note("cudaStreamWaitEvent");
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  {
    const std::lock_guard lock(fake_cuda().mutex);
    *event = headrace::gpu::handle_of<cudaEvent_t>(static_cast<std::size_t>(++fake_cuda().events));
  }
  return note("cudaEventCreate");
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return note("cudaEventRecord");
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  note("cudaEventQuery");
  const std::lock_guard lock(fake_cuda().mutex);
  if (fake_cuda().not_ready == 0) return cudaSuccess;
  --fake_cuda().not_ready;
  fake_cuda().last_error = cudaErrorNotReady;
  return cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return note("cudaEventSynchronize");
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return note("cudaEventDestroy");
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned int) {
  return note("cudaHostRegister");
}
cudaError_t cudaHostUnregister(void*) {
  return note("cudaHostUnregister");
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return note("cudaMalloc");
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return note("cudaFree");
}
cudaError_t cudaMemGetInfo(std::size_t* room, std::size_t* all) {
  *room = *all = std::size_t{1} << 30;
  return note("cudaMemGetInfo");
}
cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return note("cudaMemcpyAsync");
}

static cudaError_t entry_point(const char* name, void** call, cudaDriverEntryPointQueryResult* found) {
  using namespace headrace::gpu;
  const std::string wanted = name;
  *call = wanted == "cuDevicePrimaryCtxRetain" ? reinterpret_cast<void*>(&retain)
          : wanted == "cuCtxPushCurrent"       ? reinterpret_cast<void*>(&push)
          : wanted == "cuCtxPopCurrent"        ? reinterpret_cast<void*>(&pop)
                                               : nullptr;
  *found = *call != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** call, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return entry_point(name, call, found);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char* name, void** call, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  return entry_point(name, call, found);
}
#endif
}
