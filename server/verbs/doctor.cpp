// `headrace doctor`: whether this machine, and a configuration's data, are fit for a server.
#include <fmt/color.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/assembly/assemble.h"
#include "server/log/sink.h"
#include "server/verbs/fitness.h"
#include "server/verbs/machine.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

/// Opens each stream's dataset and makes a few of its samples.
void examine_data(const config::Config& config, const std::optional<RunningServer>& running,
                  std::vector<Finding>& out) {
  const auto assembly = assembly::assemble(config);
  if (!assembly) {
    out.push_back(broken("data", assembly.error()));
    return;
  }
  for (const exec::StreamSetup& setup : assembly->streams) out.push_back(judge_samples(setup, config, false));
  out.push_back(judge_memory(*assembly, running));
}

/// The server's keys as the environment has them; those of sources and streams need a file.
Result<config::Config> without_file() {
  constexpr std::string_view kRows =
      "sources: {rows: {type: synthetic, count: 1, bytes: 1}}\nstreams: {rows: {source: rows}}\n";
  config::Environment environment = config::process_environment();
  std::erase_if(environment, [](const std::string& variable) {
    return variable.starts_with("HEADRACE_") && !variable.starts_with("HEADRACE_SERVER_");
  });
  return config::parse(kRows, "", {}, environment);
}

void print(const Finding& one, bool color) {
  const auto [word, shade] = one.health == Health::kGood     ? std::pair("ok", fmt::terminal_color::green)
                             : one.health == Health::kBroken ? std::pair("FAIL", fmt::terminal_color::red)
                                                             : std::pair("note", fmt::terminal_color::yellow);
  fmt::print("{}  {:14} {}\n", color ? fmt::format(fmt::fg(shade), "{:4}", word) : fmt::format("{:4}", word),
             log::escaped(one.what), log::escaped(one.found));
  if (!one.remedy.empty()) fmt::print("{:21}-> {}\n", "", log::escaped(one.remedy));
}

const char* name_of(Health health) {
  return health == Health::kGood ? "ok" : health == Health::kBroken ? "fail" : "note";
}

void print_json(const std::vector<Finding>& found) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& one : found)
    checks.push_back(
        {{"check", one.what}, {"result", name_of(one.health)}, {"found", one.found}, {"remedy", one.remedy}});
  print_as_json({{"checks", std::move(checks)}});
}

/// The last line of the report.
std::string verdict(const std::vector<Finding>& found, const std::optional<RunningServer>& running) {
  std::vector<std::string> failed, unknown;
  for (const Finding& one : found)
    if (one.health == Health::kBroken)
      failed.push_back(one.what);
    else if (one.health == Health::kUnknown)
      unknown.push_back(one.what);
  if (!failed.empty()) return fmt::format("{} of {} checks failed", failed.size(), found.size());
  if (!unknown.empty()) return fmt::format("no check failed; uncertain: {}", fmt::join(unknown, ", "));
  return running ? "a server can run here, once the running server has stopped" : "a server can run here";
}

int doctor(ConfigArguments& arguments, bool as_json) {
  const bool with_data = !arguments.file.empty();
  if (!with_data && !arguments.settings.empty())
    return report(
        {ErrorCode::kInvalidArgument, "--set needs a configuration: headrace doctor FILE --set KEY=VALUE"});
  const Result<config::Config> config = with_data ? arguments.load() : without_file();
  std::vector<Finding> found = judge_machine();
  std::optional<RunningServer> running;
  if (config) {
    running = RunningServer::find(config->server.directory);
    found.push_back(judge_directory(config->server, running));
    found.push_back(judge_port(config->server, running));
    if (with_data) examine_data(*config, running, found);
  } else {
    found.push_back(broken("configuration", config.error()));
  }
  const bool failed = std::any_of(found.begin(), found.end(),
                                  [](const Finding& one) { return one.health == Health::kBroken; });
  if (as_json) {
    print_json(found);
  } else {
    const bool color = ::isatty(STDOUT_FILENO) == 1;
    for (const Finding& one : found) print(one, color);
    fmt::print("{}\n", verdict(found, running));
  }
  return failed ? 3 : 0;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ConfigArguments>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand(
      "doctor",
      "Check memory, limits, the directory, ports and GPUs of this machine, and a configuration's data");
  arguments->add_to(*verb);
  verb->get_option("config")->required(false)->description("Configuration file (YAML): also check its data");
  add_json(*verb, *as_json);
  verb->callback([arguments, as_json, &exit_code] { exit_code = doctor(*arguments, *as_json); });
}

}  // namespace headrace::server::verbs
