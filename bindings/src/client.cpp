#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "bindings/src/device.h"
#include "bindings/src/stream.h"

namespace headrace::python {
namespace {

struct PyClient {
  Client client;
};

PyClient connect(const std::string& address, double timeout, std::vector<std::uint32_t> allow_uids) {
  const ConnectOptions options{.address = address,
                               .allow_uids = std::move(allow_uids),
                               .timeout = milliseconds_of("timeout", timeout),
                               .interrupt = signal_raised};
  return {without_gil([&] { return Client::connect(options); })};
}

Join join_of(const std::string& word) {
  if (word == "default") return Join::kDefault;
  if (word == "now") return Join::kNow;
  if (word == "epoch_start") return Join::kEpochStart;
  if (word == "cursor") return Join::kCursor;
  raise({ErrorCode::kInvalidArgument, "join='" + word + "': expected default, now or epoch_start"});
}

/// The options that both kinds of streams are opened with.
OpenOptions options_of(const std::string& stream, const std::string& group, std::uint32_t rank,
                       std::uint32_t world_size, const std::string& client, const std::string& join,
                       const std::optional<std::string>& state, bool resume_from_server,
                       double reconnect_timeout) {
  OpenOptions options;
  options.stream = stream;
  options.group = group;
  options.rank = rank;
  options.world_size = world_size;
  options.client = client;
  options.join = join_of(join);
  if (state) options.state = value_of(State::from_json(*state));
  options.resume_from_server = resume_from_server;
  options.reconnect_timeout = milliseconds_of("reconnect_timeout", reconnect_timeout);
  return options;
}

std::unique_ptr<PyStream> open(PyClient& my, const std::string& stream, const std::string& group,
                               std::uint32_t rank, std::uint32_t world_size, const std::string& client,
                               const std::string& join, const std::optional<std::string>& state,
                               bool resume_from_server, double reconnect_timeout, nb::object warn,
                               bool zero_copy) {
  OpenOptions options =
      options_of(stream, group, rank, world_size, client, join, state, resume_from_server, reconnect_timeout);
  options.batches = zero_copy ? Batches::kGuarded : Batches::kPrivate;
  options.warn = [callback = shared(std::move(warn))](std::string_view text) {
    const nb::gil_scoped_acquire gil;
    try {
      (*callback)(nb::str(text.data(), text.size()));
    } catch (nb::python_error& error) {
      error.restore();  // the warning was turned into an error: next() raises it
    }
  };
  return std::make_unique<PyStream>(
      std::make_unique<Stream>(without_gil([&] { return my.client.open(options); })),
      [zero_copy](const BatchView& view) { return take_batch(view, zero_copy); });
}

std::unique_ptr<PyDeviceStream> open_on_device(
    PyClient& my, const std::string& stream, const std::string& group, std::uint32_t rank,
    std::uint32_t world_size, const std::string& client, const std::string& join,
    const std::optional<std::string>& state, bool resume_from_server, double reconnect_timeout,
    nb::object warn, const std::string& device, std::uint32_t prefetch, nb::object allocate,
    std::uintptr_t copy_stream) {
  OpenOptions options =
      options_of(stream, group, rank, world_size, client, join, state, resume_from_server, reconnect_timeout);
  options.commits = Commits::kByCaller;
  options.for_device = true;
  const auto warnings = std::make_shared<Warnings>(std::move(warn));
  options.warn = [warnings](std::string_view text) { warnings->put(text); };
  Stream opened = without_gil([&] { return my.client.open(options); });
  return load_on_device(std::move(opened), device, prefetch, std::move(allocate), copy_stream, warnings);
}

nb::list streams(PyClient& my) {
  nb::list list;
  for (const StreamInfo& info : without_gil([&] { return my.client.streams(); })) list.append(to_dict(info));
  return list;
}

nb::dict sample(PyClient& my, const std::string& stream, std::uint64_t epoch, std::uint64_t index) {
  const SampleView view = without_gil([&] { return my.client.sample(stream, epoch, index); });
  nb::dict dict;
  dict["sample_index"] = view.sample_index;
  dict["name"] = view.name;
  dict["replaced"] = view.replaced;
  dict["label"] = view.label;
  dict["fields"] = to_list(view.fields);
  dict["parameters"] = view.parameters;
  dict["bytes"] = nb::bytes(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
  return dict;
}

}  // namespace

void bind_client(nb::module_& module) {
  nb::class_<PyClient>(module, "Client")
      .def_prop_ro("address", [](PyClient& my) { return my.client.address(); })
      .def("streams", &streams)
      .def("open", &open, nb::arg("stream"), nb::arg("group"), nb::arg("rank"), nb::arg("world_size"),
           nb::arg("client"), nb::arg("join"), nb::arg("state").none(), nb::arg("resume_from_server"),
           nb::arg("reconnect_timeout"), nb::arg("warn"), nb::arg("zero_copy"))
      .def("open_on_device", &open_on_device, nb::arg("stream"), nb::arg("group"), nb::arg("rank"),
           nb::arg("world_size"), nb::arg("client"), nb::arg("join"), nb::arg("state").none(),
           nb::arg("resume_from_server"), nb::arg("reconnect_timeout"), nb::arg("warn"), nb::arg("device"),
           nb::arg("prefetch"), nb::arg("allocate").none(), nb::arg("copy_stream"))
      .def("sample", &sample, nb::arg("stream"), nb::arg("epoch"), nb::arg("index"))
      .def("stats", [](PyClient& my) { return without_gil([&] { return my.client.stats(); }); })
      .def(
          "cursors",
          [](PyClient& my, const std::string& stream, const std::string& group) {
            return without_gil([&] { return my.client.cursors(stream, group); });
          },
          nb::arg("stream"), nb::arg("group"))
      .def("drain", [](PyClient& my) { without_gil([&] { return my.client.drain(); }); });
  module.def("connect", &connect, nb::arg("address"), nb::arg("timeout"), nb::arg("allow_uids"));
}

}  // namespace headrace::python
