#include "server/session/server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "clientlib/base/human.h"
#include "clientlib/base/stop_signals.h"
#include "clientlib/ring/futex.h"
#include "server/assembly/assemble.h"
#include "server/log/barrier.h"
#include "server/log/log.h"
#include "server/metrics/slow_requests.h"
#include "server/placement/apply.h"
#include "server/sandbox/sandbox.h"
#include "server/session/admission.h"
#include "server/session/descriptors.h"
#include "server/session/labels.h"

namespace headrace::server::session {
namespace {

constexpr int kTickMs = 250;
constexpr std::chrono::milliseconds kLongestTrim{20};  // of a window in each periodic check
/// /healthz fails when the last periodic check is older.
constexpr std::uint64_t kHangs = 10'000'000'000;

/// Like assembly::assemble(), but a stop signal ends it while it waits for the network.
Result<assembly::Assembly> assemble_until_stopped(const config::Config& config, std::stop_source& reads) {
  const std::jthread watch([&reads](const std::stop_token& done) {
    while (!done.stop_requested()) {
      if (stop_is_pending()) reads.request_stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  return assembly::assemble(config, reads.get_token());
}

std::uint64_t nanoseconds(std::chrono::milliseconds time) {
  return static_cast<std::uint64_t>(time.count()) * 1'000'000;
}

/// Why the system refused what the server needs to start; most often a limit.
Error refused_by_system(const std::string& what, int number) {
  std::string remedy;
  if (number == EMFILE || number == ENFILE) remedy = "; raise the limit of open files (ulimit -n)";
  if (number == EAGAIN)
    remedy =
        ": no further thread can be created; raise the limit of threads (ulimit -u, the cgroup's pids.max), "
        "or lower server.threads and the sources' io.threads";
  return {ErrorCode::kEnvironment, fmt::format("the server cannot start: {}{}", what, remedy)};
}

}  // namespace

Server::Server(config::ServerConfig config, Directory directory)
    : config_(std::move(config)), directory_(std::move(directory)) {}

Server::~Server() {
  http_.reset();
  control_.reset();
  feeders_.clear();
  reads_.request_stop();
  bridge_.reset();
  if (engine_) engine_->stop();
  sessions_.reset();
}

Result<std::unique_ptr<Server>> Server::start(const config::Config& config,
                                              const std::function<void()>& opened) {
  try {
    return build(config, opened);
  } catch (const std::bad_alloc&) {
    return fail(
        ErrorCode::kNotEnoughMemory,
        "the server cannot start: no memory is left for its own bookkeeping; free memory, or raise the "
        "limit (the cgroup's memory.max, ulimit -v)");
  } catch (const zmq::error_t& error) {
    return fail(refused_by_system(error.what(), error.num()));
  } catch (const std::system_error& error) {
    return fail(refused_by_system(error.what(), error.code().value()));  // what() names files
  }
}

Result<std::unique_ptr<Server>> Server::build(const config::Config& config,
                                              const std::function<void()>& opened) {
  raise_descriptor_limit();
  if (descriptor_limit() < kLeastDescriptors)
    return fail(ErrorCode::kEnvironment,
                fmt::format("expected a limit of at least {} open files, found {}: raise it (ulimit -n)",
                            kLeastDescriptors, descriptor_limit()));
  set_admitted(config.server.allow);
  auto directory = Directory::claim(config.server.directory,
                                    config.server.allow.empty() ? Reach::kOwner : Reach::kEverybody);
  if (!directory) return tl::make_unexpected(directory.error());
  placement::Placement placement;
  if (config.server.numa == config::Numa::kAuto) placement = placement::place_here(config.server.threads);
  // For sources, caches and rings; not for the workers, whose own memory belongs on their nodes.
  std::optional<placement::InterleavedMemory> shared(std::in_place, placement.memory);
  if (!shared->in_effect()) placement.memory.clear();
  if (!placement.empty()) log::info("numa: {}", placement::to_string(placement));
  std::stop_source reads;
  auto assembly = assemble_until_stopped(config, reads);
  if (!assembly) return tl::make_unexpected(assembly.error());
  if (opened) opened();
  std::vector<std::unique_ptr<exec::Stream>> streams;
  for (const std::string& text : label_conflicts(assembly->streams)) log::warn("{}", text);
  // Before the rings are allocated; logged if the server starts.
  const std::string lacking = assembly::short_of_memory(*assembly);
  for (exec::StreamSetup& setup : assembly->streams) {
    const auto size = assembly::ring_size(setup);
    if (!size) return tl::make_unexpected(size.error());
    // Log it first: touching all pages of a large ring takes a while.
    log::info("stream `{}`: {}, batches of {}, ring: {}", setup.info.name,
              count_of(setup.info.samples, "sample"), setup.info.batch_size, to_string(*size));
    auto stream = exec::Stream::create(std::move(setup));
    if (!stream) return tl::make_unexpected(stream.error());
    streams.push_back(std::move(*stream));
  }
  for (const assembly::SharingGroup& group : assembly->sharing) {
    if (!group.window) continue;
    log::info("stream{} `{}`: a window of up to {} keeps decoded rows for {} (sharing.window)",
              group.streams.size() == 1 ? "" : "s", fmt::join(group.streams, "`, `"),
              human_bytes(group.window->budget()),
              group.streams.size() == 1 ? "clients that are behind" : "one another");
  }
  shared.reset();
  // Before libzmq, which aborts if it gets none.
  if (auto enough = check_descriptors(); !enough) return fail(enough.error());
  // The rings are allocated by now, each for one client.
  if (auto fits = assembly::check_memory(*assembly, 0); !fits) return tl::make_unexpected(fits.error());

  auto server = std::unique_ptr<Server>(new Server(config.server, std::move(*directory)));
  Server* const raw = server.get();
  server->reads_ = std::move(reads);
  std::vector<std::shared_ptr<cache::IdleTiler>> tilers;
  for (const assembly::CacheUse& use : assembly->caches.memory)
    if (use.tiler) tilers.push_back(use.tiler);
  server->engine_ = std::make_unique<exec::Engine>(std::move(streams), config.server.threads,
                                                   std::move(placement), std::move(tilers));
  for (assembly::SharingGroup& group : assembly->sharing) {
    const auto stream = server->engine_->find(group.streams.front());
    const bool broadcast = server->engine_->stream(*stream).info().delivery == Delivery::kBroadcast;
    server->sharing_.push_back(std::make_unique<WatchedGroup>(std::move(group), broadcast));
  }
  auto orders = std::make_shared<BridgeOrders>();
  server->collector_ = std::make_unique<Collector>(
      *server->engine_, server->sharing_, std::move(assembly->caches), std::move(assembly->remotes), orders);
  server->sessions_ = std::make_unique<Sessions>(*server->engine_);
  server->control_ = std::make_unique<Control>(
      *server->engine_, *server->sessions_,
      [raw] {
        nlohmann::json stats = raw->collector_->stats();
        const auto url = raw->metrics_url();
        stats["metrics_url"] = url ? nlohmann::json(*url) : nlohmann::json();
        return stats;
      },
      [raw] { raw->ask_to_stop(); }, server->collector_->bad_messages());
  if (auto done = server->sessions_->listen(server->directory_.socket(wire::kAttachSocket)); !done)
    return tl::make_unexpected(done.error());
  if (auto done = server->directory_.set_socket_mode(wire::kAttachSocket); !done) return fail(done.error());
  if (config.server.metrics) {
    server->status_ = std::make_unique<status::Status>(
        *server->engine_, [raw] { return raw->collector_->stats(); },
        [raw](const metrics::HttpRequest& request) { return raw->image_obstacle(request); });
    auto http = metrics::HttpServer::start(config.server.metrics->address, config.server.metrics->port,
                                           server->routes());
    if (!http) return tl::make_unexpected(http.error());
    server->http_ = std::move(*http);
  }
  if (auto done = server->start_feeders(); !done) return tl::make_unexpected(done.error());
  auto bridge = Bridge::start(server->directory_.path(), *server->engine_, std::move(orders));
  if (!bridge) return tl::make_unexpected(bridge.error());
  server->bridge_ = std::move(*bridge);
  // The control socket comes last: a client that gets an answer finds everything else in place.
  if (auto done = server->control_->bind(server->directory_.socket(wire::kControlSocket)); !done)
    return tl::make_unexpected(done.error());
  if (auto done = server->directory_.set_socket_mode(wire::kControlSocket); !done) return fail(done.error());
  const sigset_t stop = stop_signals();
  server->signals_ = ring::UniqueFd(::signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!server->signals_) {
    const int number = errno;
    return fail(refused_by_system(std::strerror(number), number));
  }
  server->listens_ = true;
  if (auto enough = check_descriptors(); !enough) return fail(enough.error());
  if (!lacking.empty()) log::warn("{}", lacking);
  server->engine_->start();
  int clients = 0;
  for (const auto& [name, stream] : config.streams) clients += static_cast<int>(stream.ring.max_clients);
  if (const auto few = short_of_descriptors(clients); !few.empty()) log::warn("{}", few);
  return server;
}

std::string Server::image_obstacle(const metrics::HttpRequest& request) const {
  switch (config_.metrics->images) {
    case config::ImagesFor::kEverybody:
      return {};
    case config::ImagesFor::kNobody:
      return "images are off (server.metrics.images: nobody)";
    case config::ImagesFor::kAdmitted:
      break;
  }
  const auto user = request.user();
  if (user && is_trusted_user(*user, config_.allow.uids)) return {};
  if (!user)
    return "images are not shown to other machines and containers, nor under a host name: forward the port "
           "over ssh and open http://127.0.0.1, or set `server.metrics.images: everybody`";
  return fmt::format(
      "images are not shown to user {}: add the user to `server.allow.uids`, or set `server.metrics.images: "
      "everybody`",
      *user);
}

std::vector<metrics::HttpServer::Route> Server::routes() {
  using metrics::HttpReply;
  using metrics::HttpRequest;
  std::vector<metrics::HttpServer::Route> routes = status_->routes();
  routes.push_back({"/metrics", [this](const HttpRequest&) {
                      return HttpReply{.type = "text/plain; version=0.0.4; charset=utf-8",
                                       .body = collector_->exposition()};
                    }});
  routes.push_back({"/healthz", [this](const HttpRequest&) {
                      const std::uint64_t ticked = ticked_ns_, now = ring::monotonic_ns();
                      if (stop_ || now < ticked + kHangs) return HttpReply{.body = "ok\n"};
                      return HttpReply{
                          .status = 503,
                          .body = fmt::format("not healthy: the main loop has not run for {} s\n",
                                              (now - ticked) / 1'000'000'000)};
                    }});
  routes.push_back({"/readyz", [this](const HttpRequest&) {
                      std::string why = stop_ ? "draining" : !listens_ ? "starting" : directory_.loss();
                      if (why.empty()) why = collector_->not_ready();
                      if (why.empty()) return HttpReply{.body = "ready\n"};
                      return HttpReply{.status = 503, .body = "not ready: " + why + "\n"};
                    }});
  return routes;
}

Result<void> Server::start_feeders() {
  for (std::size_t i = 0; i < engine_->stream_count(); ++i) {
    if (!engine_->stream(i).feed()) continue;
    auto feeder = Feeder::start(engine_->stream(i).feed(), directory_.path(), *engine_, i);
    if (!feeder) return fail(feeder.error());
    feeders_.push_back(std::move(*feeder));
  }
  return {};
}

void Server::deliver_feed_errors() {
  // The feeder is usually the parent process: its last packet or disconnection and our stop arrive in either
  // order.
  const std::chrono::milliseconds patience(parent_ended_ ? 500 : 100);
  const bool any = std::any_of(feeders_.begin(), feeders_.end(),
                               [&](const auto& feeder) { return feeder->ended_early(patience); });
  if (!any) return;
  const std::uint64_t deadline = ring::monotonic_ns() + nanoseconds(config_.drain_timeout);
  serve_until([&] { return sessions_->attached() == 0 || ring::monotonic_ns() > deadline; }, -1, -1);
}

void Server::ask_to_stop() {
  stop_.store(true);
}

void Server::run(int parent_fd, ServiceManager* manager) {
  manager_ = manager;
  serve_until([this] { return stop_.load(); }, signals_.get(), parent_fd);

  if (manager_ != nullptr) manager_->stopping();
  deliver_feed_errors();
  log::info("draining: no new batches; waiting at most {} ms for {} clients to release theirs",
            config_.drain_timeout.count(), sessions_->attached());
  control_->refuse_opens();
  for_each_stream("the drain of a stream", [](exec::Stream& stream) { stream.drain(); });
  const std::uint64_t deadline = ring::monotonic_ns() + nanoseconds(config_.drain_timeout);
  serve_until(
      [&] {
        bool drained = sessions_->attached() == 0;
        if (!drained) {
          drained = true;
          for (std::size_t i = 0; i < engine_->stream_count(); ++i)
            drained &=
                engine_->inspect(i, [](const exec::Stream& stream) { return stream.lanes().drained(); });
        }
        return drained || ring::monotonic_ns() > deadline;
      },
      -1, -1);
}

void Server::serve_until(const std::function<bool()>& done, int signals, int parent_fd) {
  std::uint64_t next_tick = 0;
  bool more = false;
  std::vector<pollfd> polls;
  while (!done()) {
    try {
      polls.clear();
      control_->add_polls(polls);
      if (signals >= 0) polls.push_back({signals, POLLIN, 0});
      if (parent_fd >= 0) polls.push_back({parent_fd, POLLIN, 0});
      sessions_->add_polls(polls);
      const int wait = more ? 0 : signals < 0 ? 20 : kTickMs;
      more = false;
      ::poll(polls.data(), polls.size(), wait);
      const std::uint64_t now = ring::monotonic_ns();
      for (const pollfd& poll : polls) {
        if (poll.revents == 0) continue;
        if (poll.fd == signals || poll.fd == parent_fd) stop_.store(true);
        if (poll.fd == parent_fd) parent_ended_ = true;
      }
      sessions_->handle(polls, now);
      more = control_->handle();
      if (now < next_tick) continue;
      next_tick = now + kTickMs * 1'000'000ULL;
      tick(now);
    } catch (...) {
      // Only one request or client failed; the server continues.
      log::thrown("the session thread");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // in case it throws each time
    }
  }
}

void Server::tick(std::uint64_t now_ns) {
  const std::uint64_t grace = nanoseconds(config_.group_grace);
  for_each_stream("the periodic check of a stream",
                  [&](exec::Stream& stream) { stream.beat(now_ns, grace); });
  for (const auto& sharing : sharing_) {  // without the engine's lock
    auto& [group, watch] = *sharing;
    if (group.window) group.window->trim(kLongestTrim);
    if (const auto warning = watch.check(now_ns, sharing_figures(*engine_, group))) log::warn("{}", *warning);
  }
  sessions_->tick(now_ns, nanoseconds(config_.evict_after));
  if (status_) status_->tick(now_ns);
  if (!stop_) watch_directory();
  sandbox::log_refusals();
  metrics::end_slow();
  // Last: a loop that hangs or throws above is not alive.
  ticked_ns_ = now_ns;
  if (manager_ != nullptr) manager_->alive(now_ns);
}

void Server::watch_directory() {
  const std::string before = std::exchange(lost_, directory_.loss());
  if (lost_ == before) return;
  if (lost_.empty()) return log::info("{}: clients can attach again", directory_.path().string());
  log::warn(
      "{}: attached clients continue, but no others can attach. Stop this server, then start it again. If a "
      "cleaner of temporary files did this, set server.directory to a folder that it spares",
      lost_);
}

template <class F>
void Server::for_each_stream(const char* doing, F work) {
  for (std::size_t i = 0; i < engine_->stream_count(); ++i) {
    try {
      engine_->with(i, [&](exec::Stream& stream) {
        work(stream);
        return 0;
      });
    } catch (...) {  // continue with the other streams
      log::thrown(doing);
    }
  }
}

}  // namespace headrace::server::session
