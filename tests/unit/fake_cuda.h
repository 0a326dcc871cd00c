// A fake CUDA runtime and driver, linked instead of the real ones: devices without memory, which record each
// call and the device that was current.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace headrace::gpu {

struct FakeCuda {
  struct Call {
    std::string name;
    int device;  ///< the current device
  };
  std::mutex mutex;
  int devices = 2;
  int driver_version = 13000;
  bool old_driver = false;
  bool lost = false;  ///< every call that would make a device current fails
  std::string fails;  ///< the name, as in `calls`, of a call that fails
  int not_ready = 0;  ///< calls of cudaEventQuery() that report so
  std::vector<Call> calls;
  std::set<int> contexts;  ///< devices that have a context
  int events = 0;          ///< events created
  int last_error = 0;      ///< the result of cudaGetLastError()

  [[nodiscard]] int count(const std::string& name) {
    const std::lock_guard lock(mutex);
    int found = 0;
    for (const Call& call : calls) found += call.name == name ? 1 : 0;
    return found;
  }
  /// The device of all calls of that name; -1 if there were several devices, or no calls.
  [[nodiscard]] int device_of(const std::string& name) {
    const std::lock_guard lock(mutex);
    std::set<int> found;
    for (const Call& call : calls)
      if (call.name == name) found.insert(call.device);
    return found.size() == 1 ? *found.begin() : -1;
  }
};

FakeCuda& fake_cuda();
/// Resets the state: no calls, and device 0 is current for this thread.
void reset_fake_cuda();
int current_device();

}  // namespace headrace::gpu
