// `headrace top`: what a server does, live in the terminal; the figures of the status page.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "clientlib/base/human.h"
#include "clientlib/ring/futex.h"
#include "server/exec/stream_status.h"
#include "server/log/sink.h"
#include "server/status/findings.h"
#include "server/status/history.h"
#include "server/status/report.h"
#include "server/verbs/question.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

using nlohmann::json;

constexpr std::size_t kTopBarWidth = 20;

std::string percent(const json& part) {
  return part.is_number() ? fmt::format("{:.0f}%", 100 * part.get<double>()) : "-";
}

double number(const json& of, const char* key) {
  const json value = of.value(key, json());
  return value.is_number() ? value.get<double>() : 0.0;
}

std::string behind(const json& client) {
  const auto lag = client.at("sharing_lag").get<std::uint64_t>();
  if (lag == 0) return "-";
  const json seconds = client.at("lag_seconds");
  return fmt::format("{}{}{}", lag, lag >= exec::ClientStatus::kMostLag ? "+" : "",
                     seconds.is_number() ? fmt::format(" ({:.1f} s)", seconds.get<double>()) : "");
}

/// Adds a line of text in lines of at most `width` bytes, broken between words. All are indented by two
/// spaces, and by those that the text begins with.
void add_wrapped_line(std::vector<std::string>& lines, const std::string& text, std::size_t width) {
  const std::string indent(2 + std::min(text.find_first_not_of(' '), text.size()), ' ');
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > width)
      lines.push_back(indent + std::exchange(line, {}));
    line += (line.empty() ? "" : " ") + word;
  }
  lines.push_back(indent + line);
}

void add_wrapped(std::vector<std::string>& lines, const std::string& text, std::size_t width) {
  std::istringstream whole(log::escaped(text));
  for (std::string line; std::getline(whole, line);) add_wrapped_line(lines, line, width);
}

/// Names are shortened if the table would not fit otherwise.
void add_clients(std::vector<std::string>& lines, const json& clients, std::size_t width) {
  constexpr std::size_t kOtherColumns = 54, kShortestName = 8;
  const std::size_t room = width > kOtherColumns + kShortestName ? width - kOtherColumns : kShortestName;
  std::size_t widest = kShortestName;
  for (const json& client : clients)
    widest = std::max(widest, log::escaped(client.at("client").get<std::string>()).size());
  const std::size_t column = std::min(widest, room);
  const auto add = [&](const auto& name, const auto& place, const auto& pace, const auto& waited,
                       const auto& lag) {
    lines.push_back(
        fmt::format("  {:{}.{}} {:>14} {:>10} {:>7}  {}", name, column, column, place, pace, waited, lag));
  };
  if (!clients.empty()) add("trainer", "epoch/batch", "samples/s", "waited", "batches behind");
  for (const json& client : clients)
    add(log::escaped(client.at("client").get<std::string>()),
        fmt::format("{}/{}", client.at("next").at("epoch").get<std::uint64_t>(),
                    client.at("next").at("batch").get<std::uint64_t>()),
        fmt::format("{:.0f}", number(client, "samples_per_second")), percent(client.at("waited")),
        behind(client));
}

void add_stream(std::vector<std::string>& lines, const std::string& name, const json& stream,
                std::size_t width) {
  const json left = stream.at("seconds_left"), factor = stream.at("sharing_factor");
  lines.push_back(fmt::format(
      "{}  epoch {} {} {}{}  {:.0f} samples/s", name, stream.at("epoch").get<std::uint64_t>(),
      bar(number(stream, "progress"), kTopBarWidth), percent(stream.at("progress")),
      left.is_number() ? fmt::format(", {} left", human_time(std::chrono::seconds(
                                                      std::lround(std::min(left.get<double>(), 1e9)))))
                       : "",
      number(stream, "samples_per_second")));
  const json& stages = stream.at("stages");
  const json& slots = stream.at("slots");
  add_wrapped(lines,
              fmt::format("worker utilization {} (read {}, decode {}, transform {}), sharing factor {}",
                          percent(stream.at("busy")), percent(stages.at("read")),
                          percent(stages.at("decode")), percent(stages.at("transform")),
                          factor.is_number() ? fmt::format("{:.2f}", factor.get<double>()) : "-"),
              width);
  add_wrapped(lines,
              fmt::format("ring {}: {} ready, {} leased, {} filling",
                          human_bytes(stream.at("ring_bytes").get<std::uint64_t>()),
                          slots.at("ready").get<std::uint64_t>(), slots.at("leased").get<std::uint64_t>(),
                          slots.at("filling").get<std::uint64_t>()),
              width);
  add_wrapped(lines, stream.at("finding").at("text").get<std::string>(), width);
  add_clients(lines, stream.at("clients"), width);
  const json& bad = stream.at("bad_samples");
  if (const auto count = bad.at("distinct").get<std::uint64_t>(); count > 0)
    add_wrapped(lines,
                fmt::format("{} bad sample{}, the first: {}", count, count == 1 ? "" : "s",
                            bad.at("first").at(0).get<std::string>()),
                width);
  lines.emplace_back();
}

std::vector<std::string> screen(const json& report, std::size_t width) {
  const auto workers = report.at("workers").get<std::uint64_t>();
  std::vector<std::string> lines = {
      fmt::format("headrace {}, process {}, {} worker{} {} busy, {:%H:%M:%S}",
                  report.at("version").get<std::string>(), report.at("pid").get<std::int64_t>(), workers,
                  workers == 1 ? "" : "s", percent(report.at("workers_busy")),
                  fmt::localtime(std::time(nullptr))),
      ""};
  for (const auto& [name, stream] : report.at("streams").items()) add_stream(lines, name, stream, width);
  return lines;
}

/// Uses the terminal's alternate screen, without a cursor, while it exists. A signal that asks to stop ends
/// the program at once, also while it waits for an answer of the server.
class AlternateScreen {
 public:
  AlternateScreen() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
      ::signal(signal, [](int) {
        leave();
        ::_exit(0);
      });
    write("\x1b[?1049h\x1b[?25l");
  }
  ~AlternateScreen() { leave(); }
  AlternateScreen(const AlternateScreen&) = delete;
  AlternateScreen& operator=(const AlternateScreen&) = delete;

  /// As many lines as there is room for, each cut at the right edge.
  static void draw(const std::vector<std::string>& lines, std::size_t height) {
    std::string text = "\x1b[H\x1b[?7l";  // from the top; what is too long is not wrapped
    const std::size_t shown = lines.size() <= height ? lines.size() : height - 1;
    for (std::size_t i = 0; i < shown; ++i) text += (i ? "\r\n" : "") + lines[i] + "\x1b[K";
    if (shown < lines.size())
      text += fmt::format("\r\n... {} more lines: enlarge the terminal\x1b[K", lines.size() - shown);
    write(text + "\x1b[J\x1b[?7h");
  }

 private:
  static void leave() { write("\x1b[?7h\x1b[?25h\x1b[?1049l"); }
  /// As a signal's handler may.
  static void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
      if (written < 0 && errno != EINTR && errno != EAGAIN) return;
      if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    }
  }
};

struct TerminalSize {
  std::size_t width = 80, height = 24;
};

TerminalSize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

Result<void> show(Client& client, bool live, bool as_json) {
  auto first = stats_of(client);
  if (!first) return tl::make_unexpected(first.error());
  status::History history(ring::monotonic_ns(), std::move(*first));
  std::unique_ptr<AlternateScreen> terminal;
  if (live) terminal = std::make_unique<AlternateScreen>();
  std::vector<std::string> lines;
  for (;;) {
    std::this_thread::sleep_for(std::chrono::duration<double>(terminal ? 1 : status::kFewestSeconds));
    auto stats = stats_of(client);
    const auto [width, height] = terminal_size();
    if (stats) {
      const std::uint64_t now = ring::monotonic_ns();
      const json report = status::report(*stats, now, history.entries());
      if (as_json) {
        print_as_json(report);
        return {};
      }
      lines = screen(report, width);
      if (history.is_due(now)) history.add(now, std::move(*stats));
    } else if (!terminal) {
      return tl::make_unexpected(stats.error());
    }
    if (!terminal) {
      fmt::print("{}\n", fmt::join(lines, "\n"));
      return {};
    }
    std::vector<std::string> drawn;
    if (!stats) {
      drawn.emplace_back("No answer from the server; the figures below are the last ones. Trying again:");
      add_wrapped(drawn, stats.error().message, width);
      drawn.emplace_back();
    }
    drawn.insert(drawn.end(), lines.begin(), lines.end());
    AlternateScreen::draw(drawn, height);
  }
}

}  // namespace

void add_top(CLI::App& app, int& exit_code) {
  auto once = std::make_shared<bool>(false), as_json = std::make_shared<bool>(false);
  CLI::App* verb =
      add_question(app, "top", "Show a server's streams and bottlenecks, live; press Ctrl-C to quit",
                   exit_code, [once, as_json](Client& client) -> Result<void> {
                     try {
                       return show(client, !*once && !*as_json && ::isatty(STDOUT_FILENO) == 1, *as_json);
                     } catch (const json::exception&) {
                       return fail(ErrorCode::kVersionMismatch,
                                   "the server and this program have different versions: run the "
                                   "`headrace top` that is installed with the server");
                     }
                   });
  verb->add_flag("--once", *once,
                 "Print the figures of two seconds and exit (default if the output is not a terminal)");
  add_json(*verb, *as_json);
}

}  // namespace headrace::server::verbs
