// The verbs of the `headrace` program. Each adds its subcommand; what it returns from its callback is the
// exit code: 0 good, 2 the configuration or a call is wrong, 3 the machine, the data or the server is.
#pragma once

#include <spdlog/common.h>
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/config/config.h"

namespace headrace::server::verbs {

void add_serve(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_pack(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_schema(CLI::App& app, int& exit_code);
void add_health(CLI::App& app, int& exit_code);
void add_ls(CLI::App& app, int& exit_code);
void add_stats(CLI::App& app, int& exit_code);
void add_sample(CLI::App& app, int& exit_code);
void add_drain(CLI::App& app, int& exit_code);

int exit_code_of(const Error& error);
/// Prints "headrace: NAME: message" on stderr and gives the exit code.
int report(const Error& error);

/// "1 class", "10 classes".
std::string count_of_classes(std::size_t classes);

/// Makes `sink` the log of this process.
void log_to(std::shared_ptr<spdlog::sinks::sink> sink);

/// stop_signals() are the session thread's alone, which takes them from a signalfd; SIGPIPE is ignored.
/// To be called before there is any thread.
void leave_signals_to_the_server();

/// kInvalidArgument: the file is data (an image, an archive, ...), where a configuration belongs.
Result<void> not_data(const std::string& file);

/// CONFIG and --set, shared by the verbs that read a configuration.
struct ConfigArguments {
  std::string file;
  std::vector<std::string> settings;

  void add_to(CLI::App& verb);
  [[nodiscard]] Result<config::Config> load() const;
};

}  // namespace headrace::server::verbs
