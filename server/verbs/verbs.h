// The verbs of the `headrace` program. Each adds its subcommand; its callback sets the exit code: 0 success,
// 2 a wrong configuration or call, 3 a fault of the machine, the data or the server.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <span>
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
void add_preview(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_completion(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_schema(CLI::App& app, int& exit_code);
void add_health(CLI::App& app, int& exit_code);
void add_ls(CLI::App& app, int& exit_code);
void add_top(CLI::App& app, int& exit_code);
void add_stats(CLI::App& app, int& exit_code);
void add_sample(CLI::App& app, int& exit_code);
void add_drain(CLI::App& app, int& exit_code);

int exit_code_of(const Error& error);
/// For the terminal: control bytes, which a file name or a client may have, are escaped. Line feeds stay.
std::string printable(const std::string& text);

/// Prints "headrace: NAME: message" on stderr and returns the exit code.
int report(const Error& error);

/// Reports a wrong call of `check`. `as_json`: as its document, too.
int report_call(const Error& error, bool as_json);
/// An exception of the standard library as an error.
Error error_of(const std::exception& thrown);

/// The type of an option whose value is a path: in the help, and so that shells complete file names.
inline constexpr const char* kPath = "PATH";
/// The end of the help of `--stream`.
inline constexpr const char* kDefaultStream = " (default: train, or the only one)";

/// `--json`. Errors go to stderr as text, with and without it.
void add_json(CLI::App& verb, bool& as_json);
/// Prints a document on stdout.
void print_as_json(const nlohmann::json& document);

/// Replaces a file, which stays as it is if that fails. kEnvironment: with the reason.
Result<void> write_file(const std::string& path, std::span<const std::byte> bytes);

/// "1.5 MB of 2.0 MB (75.0%)": a packed file and what was packed. Without the percentage if the fixed parts
/// of a small file exceed its samples many times.
std::string share_of_raw(std::uint64_t file, std::uint64_t raw);
/// "1 class", "10 classes".
std::string count_of_classes(std::size_t classes);

/// Reserves stop_signals() for the session thread, which reads them from a signalfd, and ignores SIGPIPE.
/// Call it before any thread exists.
void reserve_stop_signals();

/// kInvalidArgument: the file is data (an image, an archive, ...), not a configuration.
Result<void> not_data(const std::string& file);

/// CONFIG and --set, shared by the verbs that read a configuration.
struct ConfigArguments {
  std::string file;
  std::vector<std::string> settings;
  std::vector<std::string> defaults;  ///< `serve` only

  void add_to(CLI::App& verb);
  [[nodiscard]] Result<config::Config> load() const;
};

}  // namespace headrace::server::verbs
