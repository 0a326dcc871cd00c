#include "clientlib/gpu/cuda/context.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

namespace headrace::gpu {
namespace {

/// Looks up a driver function. The driver is not linked, so that programs start without it. Null: not found.
template <class F>
F* driver_call(const char* name) {
  void* call = nullptr;
  auto found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const auto error = cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found);
#else
  const auto error = cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<F*>(call) : nullptr;
}

struct Driver {
  decltype(cuDevicePrimaryCtxRetain)* retain =
      driver_call<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  decltype(cuCtxPushCurrent)* push = driver_call<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent");
  decltype(cuCtxPopCurrent)* pop = driver_call<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent");
  std::mutex mutex;
  std::map<int, CUcontext> contexts;  // guarded by mutex; kept until the process ends

  [[nodiscard]] CUcontext context_of(int ordinal) {
    const std::lock_guard lock(mutex);
    const auto known = contexts.find(ordinal);
    if (known != contexts.end()) return known->second;
    CUcontext context = nullptr;
    if (retain(&context, ordinal) != CUDA_SUCCESS) return nullptr;
    return contexts[ordinal] = context;
  }
};

Driver& driver() {
  static auto* const calls = new Driver;  // never freed: threads may outlive static objects
  return *calls;
}

}  // namespace

bool push_context(int ordinal) {
  Driver& calls = driver();
  if (calls.retain == nullptr || calls.push == nullptr || calls.pop == nullptr) return false;
  CUcontext const context = calls.context_of(ordinal);
  return context != nullptr && calls.push(context) == CUDA_SUCCESS;
}

void pop_context() {
  CUcontext popped = nullptr;
  (void)driver().pop(&popped);
}

}  // namespace headrace::gpu
