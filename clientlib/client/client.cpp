#include "headrace/client.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <random>

#include "clientlib/base/nearest.h"
#include "clientlib/client/address.h"
#include "clientlib/client/no_memory.h"
#include "clientlib/client/resume.h"
#include "clientlib/client/session.h"
#include "clientlib/client/stream_impl.h"
#include "clientlib/wire/object_reader.h"
#include "clientlib/wire/words.h"

namespace headrace {

using client::Deadline;

struct Client::Impl {
  client::Address server;
  std::chrono::milliseconds timeout{};
  client::Interrupt interrupt;
  client::ForkGuard fork;

  /// Sends a request that may be repeated: if the server dies before it answers and another starts within the
  /// timeout, sends it again.
  Result<client::Answer> ask(const std::string& op, const nlohmann::json& body) const {
    if (auto own = fork.check("client"); !own) return fail(own.error());
    const Deadline deadline(timeout);
    for (;;) {
      auto answer = client::exchange(server, op, body, deadline, interrupt);
      if (answer || answer.error().code != ErrorCode::kServerLost) return answer;
      if (auto hello = client::say_hello(server, deadline, interrupt); !hello) return fail(hello.error());
    }
  }
};

namespace {

std::string own_name() {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}-{}-{}", program_invocation_short_name, ::getpid(), counter.fetch_add(1));
}

const StreamInfo* find_stream(const std::vector<StreamInfo>& streams, const std::string& name) {
  const auto found =
      std::find_if(streams.begin(), streams.end(), [&](const StreamInfo& s) { return s.name == name; });
  return found == streams.end() ? nullptr : &*found;
}

Error no_such_stream(const std::vector<StreamInfo>& streams, const std::string& name) {
  std::vector<std::string> names;
  const auto uploads = [&streams](const std::string& upload) {
    return std::any_of(streams.begin(), streams.end(), [&](const StreamInfo& other) {
      return other.residence && other.residence->upload == upload;
    });
  };
  for (const StreamInfo& stream : streams)
    if (!uploads(stream.name)) names.push_back(stream.name);
  return {ErrorCode::kNoSuchStream, fmt::format("no stream '{}'; this server has: {}{}", name,
                                                fmt::join(names, ", "), did_you_mean(name, names))};
}

}  // namespace

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::connect(const ConnectOptions& options) try {
  auto server = client::resolve_address(options.address, options.allow_uids);
  if (!server) return fail(server.error());
  if (auto hello = client::say_hello(*server, Deadline(options.timeout), options.interrupt); !hello)
    return fail(hello.error());
  return Client(std::make_shared<Impl>(Impl{std::move(*server), options.timeout, options.interrupt, {}}));
} catch (const std::bad_alloc&) {
  return client::no_memory("to connect to the server");
}

const std::string& Client::address() const {
  return impl_->server.directory;
}

Result<std::vector<StreamInfo>> Client::streams() try {
  auto answer = impl_->ask("streams", nlohmann::json::object());
  if (!answer) return fail(answer.error());
  const auto list = answer->body.find("streams");
  if (list == answer->body.end() || !list->is_array())
    return fail(ErrorCode::kBadMessage, "streams reply: member 'streams' is missing");
  std::vector<StreamInfo> streams;
  for (const auto& entry : *list) {
    auto stream = wire::parse<StreamInfo>(entry);
    if (!stream) return fail(stream.error());
    streams.push_back(std::move(*stream));
  }
  return streams;
} catch (const std::bad_alloc&) {
  return client::no_memory("to ask for the server's streams");
}

Result<Stream> Client::open(const OpenOptions& options) try {
  if (options.join == Join::kCursor && !options.state && !options.resume_from_server)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream '{}': join=cursor needs a state; set OpenOptions::state", options.stream));
  if (options.state &&
      (options.resume_from_server || (options.join != Join::kDefault && options.join != Join::kCursor)))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream '{}': the state says where to begin; do not set join or resume as well",
                            options.stream));
  if (options.resume_from_server && options.join != Join::kDefault && options.join != Join::kCursor)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream '{}': resume_from_server (Python: resume='server') and join={} both say "
                            "where to begin; set only one of them",
                            options.stream, wire::word_of(options.join)));
  if (options.rank >= options.world_size)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {} of world size {}: ranks go from 0 to world size - 1 (Python reads RANK and "
                    "WORLD_SIZE if they are not given)",
                    options.rank, options.world_size));
  for (const auto& [what, name] : {std::pair{"client", &options.client}, {"group", &options.group}})
    if (name->size() > wire::kMaxName)
      return fail(ErrorCode::kInvalidArgument, fmt::format("the {} name has {} bytes, expected at most {}",
                                                           what, name->size(), wire::kMaxName));
  const auto known = streams();
  if (!known) return fail(known.error());
  const StreamInfo* info = find_stream(*known, options.stream);
  if (info == nullptr) return fail(no_such_stream(*known, options.stream));
  if (!info->on_device.empty() && !options.for_device)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream '{}' has `device: gpu` in its configuration, so field `{}` can only be computed "
                    "by a loader with a device: give the loader one (Python: device=\"cuda:0\", or \"host\" "
                    "without a GPU; C++: headrace::gpu::DeviceLoader), or set `device: cpu`",
                    info->name, info->fields[info->on_device.front().field].name));

  auto stream = std::make_unique<Stream::Impl>();
  stream->server = impl_->server;
  stream->timeout = impl_->timeout;
  stream->options = options;
  stream->options.reconnect_timeout = Deadline::bounded(options.reconnect_timeout);
  wire::OpenRequest& identity = stream->identity;
  identity.stream = options.stream;
  identity.rank = options.rank;
  identity.world_size = options.world_size;
  identity.client = options.client.empty() ? own_name() : options.client;
  identity.pid = ::getpid();
  identity.join = options.join;
  identity.resume_server = options.resume_from_server;
  if (options.state) {
    auto cursor = client::resume_cursor(*options.state, *info, options.world_size);
    if (!cursor) return fail(cursor.error());
    identity.start = *cursor;
    identity.fingerprint = options.state->fingerprint;
  }
  const Deadline deadline(impl_->timeout);
  for (;;) {
    identity.group = !options.group.empty()                   ? options.group
                     : info->delivery == Delivery::kBroadcast ? identity.client
                                                              : "default";
    auto opened = client::open_session(impl_->server, identity, stream->slots(), deadline, impl_->interrupt);
    if (opened) {
      stream->adopt(std::move(*opened));
      return Stream(std::move(stream));
    }
    if (opened.error().code == ErrorCode::kServerLost && !deadline.over()) {
      if (auto hello = client::say_hello(impl_->server, deadline, impl_->interrupt); !hello)
        return fail(hello.error());
      continue;
    }
    // Process ids repeat across containers, so a generated name may be in use: try another one.
    if (impl_->interrupt && impl_->interrupt()) return fail(opened.error());
    const bool clash = options.client.empty() && opened.error().code == ErrorCode::kClientNameTaken;
    if (!clash || deadline.over()) return fail(opened.error());
    identity.client = fmt::format("{}-{:06x}", own_name(), std::random_device{}() & 0xFFFFFFU);
  }
} catch (const std::bad_alloc&) {
  return client::no_memory("to attach to stream '" + options.stream + "'");
}

Result<SampleView> Client::sample(std::string_view stream, std::uint64_t epoch, std::uint64_t index,
                                  std::string_view picture) try {
  auto answer = impl_->ask(
      "sample", wire::to_json(wire::SampleRequest{std::string(stream), epoch, index, std::string(picture)}));
  if (!answer) return fail(answer.error());
  auto reply = wire::parse<wire::SampleReply>(answer->body);
  if (!reply) return fail(reply.error());
  return SampleView{
      reply->sample_index,      std::move(reply->name),   reply->replaced,          reply->label,
      std::move(reply->fields), reply->parameters.dump(), std::move(answer->binary)};
} catch (const std::bad_alloc&) {
  return client::no_memory("for a sample of stream '" + std::string(stream) + "'");
}

Result<std::string> Client::stats() try {
  auto answer = impl_->ask("stats", nlohmann::json::object());
  if (!answer) return fail(answer.error());
  return answer->body.dump();
} catch (const std::bad_alloc&) {
  return client::no_memory("for the server's statistics");
}

Result<std::string> Client::cursors(std::string_view stream, std::string_view group) try {
  auto answer = impl_->ask("cursor_get",
                           wire::to_json(wire::CursorGetRequest{std::string(stream), std::string(group)}));
  if (!answer) return fail(answer.error());
  return answer->body.dump();
} catch (const std::bad_alloc&) {
  return client::no_memory("for the cursors of stream '" + std::string(stream) + "'");
}

Result<void> Client::drain() try {
  if (auto own = impl_->fork.check("client"); !own) return own;
  auto answer = client::exchange(impl_->server, "drain", nlohmann::json::object(), Deadline(impl_->timeout),
                                 impl_->interrupt);
  // A server that exits before it answers has done what drain asks for.
  if (!answer && answer.error().code != ErrorCode::kServerLost) return fail(answer.error());
  return {};
} catch (const std::bad_alloc&) {
  return client::no_memory("to ask the server to drain");
}

}  // namespace headrace
