// A stream whose batches lie in device memory: a framework's, by its own allocator, or the loader's.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/src/loop.h"
#include "headrace/device_loader.h"

namespace headrace::python {

struct PyDeviceBatch {
  std::shared_ptr<gpu::DeviceBatch> batch;  ///< arrays over it share it
};

using PyDeviceStream = PyLoop<gpu::DeviceLoader, PyDeviceBatch>;

/// What threads that are not Python's have to say: kept until one of Python's asks.
///
/// Thread safety: any thread.
class Warnings {
 public:
  explicit Warnings(nb::object callback) : callback_(shared(std::move(callback))) {}
  void put(std::string_view text);
  /// With the GIL. May set an exception: a warning that was made an error.
  void tell();

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;  // guarded by mutex_
  const std::shared_ptr<nb::object> callback_;
};

/// `allocate(bytes)` gives (owner, address); None: the loader's own memory.
std::unique_ptr<PyDeviceStream> load_on_device(Stream stream, const std::string& device,
                                               std::uint32_t prefetch, nb::object allocate,
                                               std::uintptr_t copy_stream,
                                               std::shared_ptr<Warnings> warnings);

}  // namespace headrace::python
