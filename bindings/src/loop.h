// What a Python loop iterates over, with a lock: two Python threads in one loop get a named error instead of
// a race. A signal's handler runs inside the call that waits, in its thread: it may ask, and close.
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

/// Over a Stream or a gpu::DeviceLoader, whose batches `take` makes Python's: without the GIL.
template <class Source, class Batch>
class PyLoop {
 public:
  using View = typename decltype(std::declval<Source&>().next())::value_type::value_type;
  using Take = std::function<Batch(View&)>;

  /// `tell`: with the GIL, after each wait and about every 100 ms of it; what other threads had to say. It
  /// may set an exception.
  PyLoop(std::unique_ptr<Source> source, Take take, std::function<void()> tell = {})
      : source_(std::move(source)), take_(std::move(take)), tell_(std::move(tell)) {
    before_ = source_->cursor();
    source_->set_interrupt([this] { return closed_.load() || told() || signal_raised(); });
  }

  // Without the GIL: a thread of the source's may want it before it can end.
  ~PyLoop() {
    {
      const nb::gil_scoped_release no_gil;
      source_.reset();
    }
    let_go();
  }
  PyLoop(const PyLoop&) = delete;
  PyLoop& operator=(const PyLoop&) = delete;

  /// None at the epoch's end. Waits without the GIL; a signal's exception comes through.
  std::optional<Batch> next(double timeout) {
    const std::chrono::milliseconds limit = milliseconds_of("batch_timeout", timeout);
    const Visit visit(*this);
    Result<std::optional<Batch>> batch = std::nullopt;
    {
      const nb::gil_scoped_release no_gil;
      before_ = source_->cursor();
      auto view = source_->next(limit);
      if (!view)
        batch = fail(view.error());
      else if (*view)
        batch = take_(**view);
    }
    throw_what_is_set();
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
  /// `undone`: as if the last next() had not been.
  std::string state(bool undone) {
    return look([this, undone](Source& source) {
      State state = source.state();
      if (undone) state.cursor = before_;
      return state.to_json();
    });
  }
  /// Goes back to before the last next(), if that took a batch: an exception (a signal's) kept it from the
  /// loop.
  void undo() {
    apply([this](Source& source) {
      if (source.cursor() == before_) return Result<void>();
      if (source.info().live) {
        const std::string lost = to_string(std::exchange(before_, source.cursor()));
        return Result<void>(fail(ErrorCode::kStreamFailed,
                                 "an exception came while the loop was handed " + lost + " of live stream '" +
                                     source.info().name +
                                     "', which cannot be had again; the next call goes on behind it"));
      }
      State state = source.state();
      state.cursor = before_;
      return source.load_state(state);
    });
  }
  /// Ends the attachment; a thread that waits in next() gets CLOSED.
  void close() {
    closed_ = true;
    if (fork_.forked() || waits_here()) return;
    {
      const nb::gil_scoped_release no_gil;
      const std::lock_guard lock(mutex_);
      source_.reset();
    }
    let_go();
  }

  template <class F>
  auto look(F ask) {
    if (waits_here()) return ask(*source_);
    const Visit visit(*this);
    return ask(*source_);
  }

 private:
  /// One call's time inside. Throws FORKED in a child (whose copy of the lock may be held for ever),
  /// ITERATOR_BUSY if somebody is inside, CLOSED after close(). At its end it carries out a close() that came
  /// from within.
  class Visit {
   public:
    explicit Visit(PyLoop& loop) : my_(loop) {
      value_of(my_.fork_.check("loader"));
      if (my_.waits_here())
        raise({ErrorCode::kIteratorBusy,
               "this loader waits in the same thread, below the signal handler that called it: a handler may "
               "ask (state_dict) and close, not iterate or seek"});
      lock_ = std::unique_lock(my_.mutex_, std::try_to_lock);
      if (!lock_)
        raise({ErrorCode::kIteratorBusy,
               "another thread is inside this loader: give each thread a loader of its own"});
      if (!my_.source_) raise({ErrorCode::kClosed, "this loader was closed"});
      my_.visitor_ = std::this_thread::get_id();
    }
    ~Visit() {
      if (my_.closed_) {
        const nb::gil_scoped_release no_gil;
        my_.source_.reset();
      }
      my_.visitor_ = std::thread::id();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    PyLoop& my_;
    std::unique_lock<std::mutex> lock_;
  };
  /// This thread is inside already: a signal's handler, above a call that waits and changes nothing
  /// meanwhile.
  [[nodiscard]] bool waits_here() const { return visitor_.load() == std::this_thread::get_id(); }

  template <class F>
  void apply(F change) {
    const Visit visit(*this);
    Result<void> done;
    {
      const nb::gil_scoped_release no_gil;
      done = change(*source_);
    }
    throw_what_is_set();
    value_of(std::move(done));
  }

  bool told() {
    if (!tell_) return false;
    const nb::gil_scoped_acquire gil;
    tell_();
    return PyErr_Occurred() != nullptr;
  }
  void throw_what_is_set() {
    if (PyErr_Occurred() == nullptr && tell_) tell_();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }

  client::ForkGuard fork_;
  std::mutex mutex_;
  std::unique_ptr<Source> source_;  // guarded by mutex_
  const Take take_;
  const std::function<void()> tell_;
  Cursor before_;  // the last next(); guarded by mutex_
  std::atomic<bool> closed_{false};
  std::atomic<std::thread::id> visitor_{};
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
      .def("info", [](Loop& my) { return my.look([](Source& s) { return to_dict(s.info()); }); })
      .def("length", [](Loop& my) { return my.look([](Source& s) { return s.length(); }); })
      .def("epoch", [](Loop& my) { return my.look([](Source& s) { return s.epoch(); }); })
      .def("begun", [](Loop& my) { return my.look([](Source& s) { return s.begun(); }); })
      .def("ready", [](Loop& my) { return my.look([](Source& s) { return s.ready(); }); })
      .def("waited", [](Loop& my) {
        return my.look([](Source& s) { return std::chrono::duration<double>(s.waited()).count(); });
      });
}

}  // namespace headrace::python
