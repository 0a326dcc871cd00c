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
    int device;  ///< that was current
  };
  std::mutex mutex;
  int devices = 2;
  int driver_version = 13000;
  bool old_driver = false;
  bool lost = false;  ///< makes every call fail that would make a device current
  std::string fails;  ///< the name, as in `calls`, of a call that fails
  int not_ready = 0;  ///< cudaEventQuery()s that are answered so
  std::vector<Call> calls;
  std::set<int> contexts;  ///< devices that have one
  int events = 0;          ///< that were created
  int last_error = 0;      ///< what cudaGetLastError() would give

  [[nodiscard]] int count(const std::string& name) {
    const std::lock_guard lock(mutex);
    int found = 0;
    for (const Call& call : calls) found += call.name == name ? 1 : 0;
    return found;
  }
  /// Where all calls of that name were made; -1: on several devices, or none.
  [[nodiscard]] int device_of(const std::string& name) {
    const std::lock_guard lock(mutex);
    std::set<int> found;
    for (const Call& call : calls)
      if (call.name == name) found.insert(call.device);
    return found.size() == 1 ? *found.begin() : -1;
  }
};

FakeCuda& fake_cuda();
/// As a test begins: nothing has been called, device 0 is this thread's.
void reset_fake_cuda();
int current_device();

}  // namespace headrace::gpu
