// A stream with a lock: two Python threads in one stream get a named error instead of a race. A signal's
// handler runs inside the call that waits, in its thread: it may ask, and close.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "bindings/src/batch.h"
#include "clientlib/client/fork_guard.h"

namespace headrace::python {

class PyStream {
 public:
  PyStream(Stream stream, bool read_only);

  /// None at the epoch's end. Waits without the GIL; a signal's exception comes through.
  std::optional<PyBatch> next(double timeout);
  void set_epoch(std::uint64_t epoch);
  void next_epoch();
  void load_state(const std::string& json);
  /// `undone`: as if the last next() had not been.
  std::string state(bool undone);
  /// Goes back to before the last next(), if that took a batch: an exception (a signal's) kept it from the
  /// loop.
  void undo();
  /// Ends the attachment; a thread that waits in next() gets CLOSED.
  void close();

  template <class F>
  auto look(F ask) {
    if (waits_here()) return ask(*stream_);
    const Visit visit(*this);
    return ask(*stream_);
  }

 private:
  /// One call's time inside. Throws FORKED in a child (whose copy of the lock may be held for ever),
  /// ITERATOR_BUSY if somebody is inside, CLOSED after close(). At its end it carries out a close() that came
  /// from within.
  class Visit {
   public:
    explicit Visit(PyStream& stream);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    PyStream& my_;
    std::unique_lock<std::mutex> lock_;
  };
  /// This thread is inside already: a signal's handler, above a call that waits and changes nothing
  /// meanwhile.
  [[nodiscard]] bool waits_here() const { return visitor_.load() == std::this_thread::get_id(); }
  void apply(const std::function<Result<void>(Stream&)>& change);

  client::ForkGuard fork_;
  std::mutex mutex_;
  std::optional<Stream> stream_;  // guarded by mutex_
  const bool read_only_;
  Cursor before_;  // the last next(); guarded by mutex_
  std::atomic<bool> closed_{false};
  std::atomic<std::thread::id> visitor_{};
};

}  // namespace headrace::python
