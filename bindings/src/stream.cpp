#include "bindings/src/stream.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <utility>

namespace headrace::python {
PyStream::PyStream(Stream stream, bool read_only) : stream_(std::move(stream)), read_only_(read_only) {
  stream_->set_interrupt([this] { return closed_.load() || signal_raised(); });
}

PyStream::Visit::Visit(PyStream& stream) : my_(stream) {
  value_of(my_.fork_.check("loader"));
  if (my_.waits_here())
    raise({ErrorCode::kIteratorBusy,
           "this loader waits in the same thread, below the signal handler that called it: a handler may ask "
           "(state_dict) and close, not iterate or seek"});
  lock_ = std::unique_lock(my_.mutex_, std::try_to_lock);
  if (!lock_)
    raise({ErrorCode::kIteratorBusy,
           "another thread is inside this loader: give each thread a loader of its own"});
  if (!my_.stream_) raise({ErrorCode::kClosed, "this loader was closed"});
  my_.visitor_ = std::this_thread::get_id();
}

PyStream::Visit::~Visit() {
  if (my_.closed_) my_.stream_.reset();
  my_.visitor_ = std::thread::id();
}

std::optional<PyBatch> PyStream::next(double timeout) {
  const std::chrono::milliseconds limit = milliseconds_of("batch_timeout", timeout);
  const Visit visit(*this);
  Result<std::optional<PyBatch>> batch = std::nullopt;
  {
    const nb::gil_scoped_release no_gil;
    before_ = stream_->cursor();
    auto view = stream_->next(limit);
    if (!view)
      batch = fail(view.error());
    else if (*view)
      batch = take_batch(**view, read_only_);
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!batch && closed_.load()) raise({ErrorCode::kClosed, "this loader was closed while it waited"});
  return value_of(std::move(batch));
}

void PyStream::apply(const std::function<Result<void>(Stream&)>& change) {
  const Visit visit(*this);
  Result<void> done;
  {
    const nb::gil_scoped_release no_gil;
    done = change(*stream_);
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  value_of(std::move(done));
}

void PyStream::set_epoch(std::uint64_t epoch) {
  apply([epoch](Stream& stream) { return stream.set_epoch(epoch); });
}

void PyStream::next_epoch() {
  apply([](Stream& stream) { return stream.next_epoch(); });
}

void PyStream::load_state(const std::string& json) {
  const State state = value_of(State::from_json(json));
  apply([&state](Stream& stream) { return stream.load_state(state); });
}

std::string PyStream::state(bool undone) {
  return look([this, undone](Stream& stream) {
    State state = stream.state();
    if (undone) state.cursor = before_;
    return state.to_json();
  });
}

void PyStream::undo() {
  apply([this](Stream& stream) {
    if (stream.cursor() == before_) return Result<void>();
    if (stream.info().live) {
      const std::string lost = to_string(std::exchange(before_, stream.cursor()));
      return Result<void>(fail(ErrorCode::kStreamFailed,
                               "an exception came while the loop was handed " + lost + " of live stream '" +
                                   stream.info().name +
                                   "', which cannot be had again; the next call goes on behind it"));
    }
    State state = stream.state();
    state.cursor = before_;
    return stream.load_state(state);
  });
}

void PyStream::close() {
  closed_ = true;
  if (fork_.forked() || waits_here()) return;
  const nb::gil_scoped_release no_gil;
  const std::lock_guard lock(mutex_);
  stream_.reset();
}

void bind_stream(nb::module_& module) {
  nb::class_<PyStream>(module, "Stream")
      .def("next", &PyStream::next, nb::arg("timeout"))
      .def("set_epoch", &PyStream::set_epoch, nb::arg("epoch"))
      .def("next_epoch", &PyStream::next_epoch)
      .def("state", &PyStream::state, nb::arg("undone"))
      .def("undo", &PyStream::undo)
      .def("load_state", &PyStream::load_state, nb::arg("json"))
      .def("close", &PyStream::close)
      .def("info", [](PyStream& my) { return my.look([](Stream& s) { return to_dict(s.info()); }); })
      .def("length", [](PyStream& my) { return my.look([](Stream& s) { return s.length(); }); })
      .def("epoch", [](PyStream& my) { return my.look([](Stream& s) { return s.epoch(); }); })
      .def("begun", [](PyStream& my) { return my.look([](Stream& s) { return s.begun(); }); })
      .def("ready", [](PyStream& my) { return my.look([](Stream& s) { return s.ready(); }); })
      .def("max_leases", [](PyStream& my) { return my.look([](Stream& s) { return s.max_leases(); }); })
      .def("live_views", [](PyStream& my) { return my.look([](Stream& s) { return s.live_views(); }); })
      .def("waited", [](PyStream& my) {
        return my.look([](Stream& s) { return std::chrono::duration<double>(s.waited()).count(); });
      });
}

}  // namespace headrace::python
