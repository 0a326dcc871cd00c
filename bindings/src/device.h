// A stream whose batches are in device memory, which a framework's allocator or the loader provides.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/src/loop.h"
#include "headrace/device_loader.h"

namespace headrace::python {

/// The layout of a stream's last batch as Python objects. Most batches have the same one, and converting it
/// costs up to 1 us, of the 10 us that a small batch costs the loop. Use with the GIL.
struct LayoutCache {
  std::vector<std::int64_t> counts;  ///< of each field: its rows, or its values if it is ragged
  nb::object fields;                 ///< null: nothing was converted yet
};

struct PyDeviceBatch {
  std::shared_ptr<gpu::DeviceBatch> batch;  ///< shared with arrays over its memory
  std::shared_ptr<LayoutCache> layout;      ///< shared by the batches of a stream
};

using PyDeviceStream = PyLoop<gpu::DeviceLoader, PyDeviceBatch>;

/// Warnings from the library's own threads, kept until a Python thread reports them.
///
/// Thread safety: any thread.
class Warnings {
 public:
  explicit Warnings(nb::object callback) : callback_(shared(std::move(callback))) {}
  void put(std::string_view text);
  /// Reports the warnings; call with the GIL. Sets an exception if Python turns warnings into errors.
  void report();

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;  // guarded by mutex_
  const std::shared_ptr<nb::object> callback_;
};

/// `allocate(bytes)` returns (owner, address). If `allocate` is None, the loader allocates memory itself.
std::unique_ptr<PyDeviceStream> load_on_device(Stream stream, const std::string& device,
                                               std::uint32_t prefetch, nb::object allocate,
                                               std::uintptr_t copy_stream,
                                               std::shared_ptr<Warnings> warnings);

}  // namespace headrace::python
