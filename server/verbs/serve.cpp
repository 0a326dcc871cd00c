#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>

#include "clientlib/base/human.h"
#include "clientlib/ring/unique_fd.h"
#include "server/log/log.h"
#include "server/log/sink.h"
#include "server/sandbox/sandbox.h"
#include "server/session/server.h"
#include "server/session/service_manager.h"
#include "server/verbs/live_line.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

constexpr std::chrono::seconds kReadsPatience{2};

struct ServeArguments {
  ConfigArguments config;
  int parent_fd = -1;
  int ready_fd = -1;
};

std::chrono::nanoseconds cpu_time() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/// A thread that waits in vain for storage cannot be interrupted: the process then ends without it, and says
/// so. A thread that makes progress is waited for: freeing the pages of a large ring takes seconds.
void end_after(const std::stop_token& ended, std::chrono::seconds patience, const log::Sink& sink) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  std::chrono::nanoseconds before{};
  do {
    before = cpu_time();
    wake.wait_for(lock, ended, patience, [] { return false; });
    if (ended.stop_requested()) return;
  } while (cpu_time() - before > std::chrono::nanoseconds(patience) / 4);
  log::error(
      "stopped without a thread that did not end within {} s, most often because a read does not return; "
      "check the disks, mounts and servers of the sources",
      patience.count());
  sink.restore_terminal();
  std::_Exit(0);
}

/// Gives up after a second: a full pipe must not delay the server.
void write_ready_line(int fd, const std::string& line) {
  const ring::UniqueFd end(fd);
  constexpr int kPatienceMs = 1000;
  pollfd room{fd, POLLOUT, 0};
  ssize_t written = -1;
  do {
    written = ::poll(&room, 1, kPatienceMs) == 1 ? ::write(fd, line.data(), line.size()) : -1;
  } while (written < 0 && errno == EINTR);
  if (written < 0)
    log::warn(
        "--ready-fd {}: cannot write the ready line; pass a writable descriptor that another process reads",
        fd);
}

/// A server without the filter still serves: whether it must not is up to those who read the log.
void filter_calls(config::Seccomp seccomp) {
  if (seccomp == config::Seccomp::kOff || !sandbox::can_filter()) return;
  if (auto filtered = sandbox::filter_calls(); !filtered) log::warn("{}", filtered.error().message);
}

/// Before any thread is created.
int serve(const ServeArguments& arguments) {
  const auto privileges = sandbox::drop_privileges();
  const auto sink = std::make_shared<log::Sink>(STDERR_FILENO);
  log::set_sink(sink);  // first, so that a startup error does not wait for the log's reader
  auto config = arguments.config.load();
  if (!config) return report(config.error());
  log::set_level(config->server.log_level);
  sink->set_format(config->server.log_format);
  if (!privileges) log::warn("{}", privileges.error().message);
  reserve_stop_signals();

  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> opening{};
  const auto opened = [&] {
    opening = std::chrono::steady_clock::now() - begin;
    // Not before: opening a database starts a process that checks its pages (store/tree_check.h).
    filter_calls(config->server.seccomp);
  };
  auto server = session::Server::start(*config, opened);
  sandbox::log_refusals();
  if (!server && config->server.log_format == log::Format::kJson) {
    log::error("{}", server.error().to_string());
    return exit_code_of(server.error());
  }
  if (!server) return report(server.error());
  const auto metrics = (*server)->metrics_url();
  log::info("serving in {} with {}, {}; opening the sources took {:.2f} s", (*server)->directory().string(),
            count_of((*server)->engine().threads(), "worker"),
            metrics ? "metrics at " + *metrics : "no metrics", opening.count());
  if (arguments.ready_fd >= 0) {
    const std::string line =
        fmt::format("ready {} {}\n", (*server)->directory().string(), metrics.value_or("-"));
    write_ready_line(arguments.ready_fd, line);
  }
  session::ServiceManager manager;
  manager.ready("serving in " + (*server)->directory().string());
  {
    const LiveLine line((*server)->engine(), *sink);
    (*server)->run(arguments.parent_fd, &manager);
  }
  {
    std::optional<std::jthread> guard;
    try {
      guard.emplace([&sink](const std::stop_token& ended) { end_after(ended, kReadsPatience, *sink); });
    } catch (const std::system_error&) {  // no further thread can be created: stop without the guard
    }
    server->reset();
  }
  sandbox::log_refusals();
  log::info("stopped");
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* verb =
      app.add_subcommand("serve", "Serve the streams of a configuration until SIGTERM, SIGINT or SIGHUP");
  arguments->config.add_to(*verb);
  verb->add_option("--default", arguments->config.defaults,
                   "A value that is used unless the configuration, the environment or --set gives one: "
                   "--default server.metrics.port=0 (repeatable)");
  verb->add_option("--parent-fd", arguments->parent_fd,
                   "Stop when this descriptor reaches end of file, because the parent has exited")
      ->group("For programs that start the server");
  verb->add_option("--ready-fd", arguments->ready_fd,
                   "Write `ready DIRECTORY METRICS_URL` to this descriptor when clients can attach")
      ->group("For programs that start the server");
  verb->callback([arguments, &exit_code] { exit_code = serve(*arguments); });
}

}  // namespace headrace::server::verbs
