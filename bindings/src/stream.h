// A stream with a lock: two Python threads in one stream get a named error instead of a race.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "bindings/src/batch.h"
#include "clientlib/client/fork_guard.h"

namespace headrace::python {

class PyStream {
 public:
  explicit PyStream(Stream stream);

  /// None at the epoch's end. Waits and copies without the GIL; a signal's exception comes through.
  std::optional<PyBatch> next(double timeout, bool zero_copy);
  void set_epoch(std::uint64_t epoch);
  void next_epoch();
  void load_state(const std::string& json);
  std::string state();
  /// Ends the attachment; a thread that waits in next() gets CLOSED.
  void close();

  template <class F>
  auto look(F ask) {
    const auto lock = enter();
    return ask(*stream_);
  }

 private:
  /// Throws FORKED in a child (whose copy of the lock may be held for ever), ITERATOR_BUSY if another thread
  /// is inside, CLOSED after close().
  std::unique_lock<std::mutex> enter();
  void apply(const std::function<Result<void>(Stream&)>& change);

  client::ForkGuard fork_;
  std::mutex mutex_;
  std::optional<Stream> stream_;  // guarded by mutex_
  std::atomic<bool> closed_{false};
  std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>(stream_->info().fields.size());
};

}  // namespace headrace::python
