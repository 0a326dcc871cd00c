// The iterable of a Python loop. A lock turns concurrent calls from two Python threads into a named error. A
// signal handler runs inside the waiting call, in the same thread: it may read the state and close, but not
// iterate or seek.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "bindings/src/bindings.h"
#include "clientlib/client/fork_guard.h"

namespace headrace::python {

/// Iterates over a Stream or a gpu::DeviceLoader. `take` converts a batch for Python; it is called without
/// the GIL.
template <class Source, class Batch>
class PyLoop {
 public:
  using View = typename decltype(std::declval<Source&>().next())::value_type::value_type;
  using Take = std::function<Batch(View&)>;

  /// `report`: reports warnings from other threads. It is called with the GIL, after each wait and about
  /// every 100 ms during it, and may set an exception.
  PyLoop(std::unique_ptr<Source> source, Take take, std::function<void()> report = {})
      : source_(std::move(source)), take_(std::move(take)), report_(std::move(report)) {
    before_ = source_->cursor();
    source_->set_interrupt([this] { return closed_.load() || report_raised() || signal_raised(); });
  }

  // Destroys the source without the GIL, because one of its threads may need the GIL before it can end.
  ~PyLoop() {
    {
      const nb::gil_scoped_release no_gil;
      source_.reset();
    }
    drop_deferred_references();
  }
  PyLoop(const PyLoop&) = delete;
  PyLoop& operator=(const PyLoop&) = delete;

  /// The next batch; None at the epoch's end. Waits without the GIL, and throws the exception of a signal's
  /// handler.
  std::optional<Batch> next(double timeout) {
    const std::chrono::milliseconds limit = milliseconds_of("batch_timeout", timeout);
    const Call call(*this);
    Result<std::optional<Batch>> batch = std::nullopt;
    bool got_none = false;
    {
      const nb::gil_scoped_release no_gil;
      before_ = source_->cursor();
      auto view = source_->next(limit);
      got_none = !view;
      if (!view)
        batch = fail(view.error());
      else if (*view)
        batch = take_(**view);
    }
    throw_pending_exception();
    if (got_none)
      before_ = source_->cursor();  // if a live batch is lost, this error says so, and undo() need not
    if (!batch && closed_.load()) raise({ErrorCode::kClosed, "this loader was closed while it waited"});
    return value_of(std::move(batch));
  }

  void set_epoch(std::uint64_t epoch) {
    apply([epoch](Source& source) { return source.set_epoch(epoch); });
  }
  void next_epoch() {
    apply([](Source& source) { return source.next_epoch(); });
  }
  void load_state(const std::string& json) {
    const State state = value_of(State::from_json(json));
    apply([&state](Source& source) { return source.load_state(state); });
  }
  /// `undone`: the state before the last next().
  std::string state(bool undone) {
    return inspect([this, undone](Source& source) {
      State state = source.state();
      if (undone) state.cursor = before_;
      return state.to_json();
    });
  }
  /// Goes back to the position before the last next(), if that returned a batch which the loop did not
  /// receive because of an exception, such as a signal handler's.
  void undo() {
    apply([this](Source& source) {
      if (source.cursor() == before_) return Result<void>();
      if (source.info().live) {
        const std::string lost = to_string(std::exchange(before_, source.cursor()));
        return Result<void>(fail(ErrorCode::kStreamFailed,
                                 "an exception lost " + lost + " of live stream '" + source.info().name +
                                     "', which cannot be delivered again; the next call continues after it"));
      }
      State state = source.state();
      state.cursor = before_;
      return source.load_state(state);
    });
  }
  /// Detaches. A thread that waits in next() gets CLOSED.
  void close() {
    closed_ = true;
    if (fork_.forked() || is_nested()) return;
    {
      const nb::gil_scoped_release no_gil;
      const std::lock_guard lock(mutex_);
      source_.reset();
    }
    drop_deferred_references();
  }

  template <class F>
  auto inspect(F ask) {
    if (is_nested()) return ask(*source_);
    const Call call(*this);
    return ask(*source_);
  }

 private:
  /// Holds the lock during a call. Throws FORKED in a forked child (whose copy of the lock may be held for
  /// ever), ITERATOR_BUSY during another call, CLOSED after close(). Its destructor completes a close() that
  /// was made during the call.
  class Call {
   public:
    explicit Call(PyLoop& loop) : my_(loop) {
      value_of(my_.fork_.check("loader"));
      if (my_.is_nested())
        raise({ErrorCode::kIteratorBusy,
               "this signal handler interrupted a call of the same loader: it may call state_dict() and "
               "close(), but not iterate or seek"});
      lock_ = std::unique_lock(my_.mutex_, std::try_to_lock);
      if (!lock_)
        raise({ErrorCode::kIteratorBusy,
               "another thread is using this loader: give each thread its own loader"});
      if (!my_.source_) raise({ErrorCode::kClosed, "this loader was closed"});
      my_.calling_thread_ = std::this_thread::get_id();
    }
    ~Call() {
      if (my_.closed_) {
        const nb::gil_scoped_release no_gil;
        my_.source_.reset();
      }
      my_.calling_thread_ = std::thread::id();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    PyLoop& my_;
    std::unique_lock<std::mutex> lock_;
  };
  /// Whether this thread is already in a call: then this is a signal handler, and the interrupted call
  /// changes nothing while it waits.
  [[nodiscard]] bool is_nested() const { return calling_thread_.load() == std::this_thread::get_id(); }

  template <class F>
  void apply(F change) {
    const Call call(*this);
    Result<void> done;
    {
      const nb::gil_scoped_release no_gil;
      done = change(*source_);
    }
    throw_pending_exception();
    value_of(std::move(done));
  }

  bool report_raised() {
    if (!report_) return false;
    const nb::gil_scoped_acquire gil;
    report_();
    return PyErr_Occurred() != nullptr;
  }
  void throw_pending_exception() {
    if (PyErr_Occurred() == nullptr && report_) report_();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }

  client::ForkGuard fork_;
  std::mutex mutex_;
  std::unique_ptr<Source> source_;  // guarded by mutex_
  const Take take_;
  const std::function<void()> report_;
  Cursor before_;  // the position before the last next(); guarded by mutex_
  std::atomic<bool> closed_{false};
  std::atomic<std::thread::id> calling_thread_{};
};

/// The methods that Python's Loader calls, whatever it iterates over.
template <class Loop, class Source>
nb::class_<Loop> bind_loop(nb::module_& module, const char* name) {
  return nb::class_<Loop>(module, name)
      .def("next", &Loop::next, nb::arg("timeout"))
      .def("set_epoch", &Loop::set_epoch, nb::arg("epoch"))
      .def("next_epoch", &Loop::next_epoch)
      .def("state", &Loop::state, nb::arg("undone"))
      .def("undo", &Loop::undo)
      .def("load_state", &Loop::load_state, nb::arg("json"))
      .def("close", &Loop::close)
      .def("info", [](Loop& my) { return my.inspect([](Source& s) { return to_dict(s.info()); }); })
      .def("length", [](Loop& my) { return my.inspect([](Source& s) { return s.length(); }); })
      .def("epoch", [](Loop& my) { return my.inspect([](Source& s) { return s.epoch(); }); })
      .def("begun", [](Loop& my) { return my.inspect([](Source& s) { return s.begun(); }); })
      .def("ready", [](Loop& my) { return my.inspect([](Source& s) { return s.ready(); }); })
      .def("waited", [](Loop& my) {
        return my.inspect([](Source& s) { return std::chrono::duration<double>(s.waited()).count(); });
      });
}

}  // namespace headrace::python
