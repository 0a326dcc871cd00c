#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "clientlib/base/human.h"
#include "clientlib/base/nearest.h"
#include "clientlib/base/new_file.h"
#include "clientlib/base/stop_signals.h"
#include "headrace/version.h"
#include "server/log/log.h"
#include "server/log/sink.h"
#include "server/source/files/file_kind.h"
#include "server/verbs/program.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {

int exit_code_of(const Error& error) {
  const bool call = error.code == ErrorCode::kConfigInvalid || error.code == ErrorCode::kInvalidArgument ||
                    error.code == ErrorCode::kNoSuchStream;
  return call ? 2 : 3;
}

std::string printable(const std::string& text) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find('\n', begin);
    out += log::escaped(std::string_view(text).substr(begin, end - begin));
    if (end != std::string::npos) out += '\n';
  }
  return out;
}

int report(const Error& error) {
  std::fflush(stdout);  // so that a file or pipe for both has what was printed before first
  std::fprintf(stderr, "headrace: %s\n", printable(error.to_string()).c_str());
  return exit_code_of(error);
}

Error error_of(const std::exception& thrown) {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr)
    return {ErrorCode::kNotEnoughMemory,
            "no memory is left; free memory, or raise the limit (the cgroup's memory.max, ulimit -v)"};
  // std::system_error: of fmt::print, or a thread that cannot be created.
  const bool system = dynamic_cast<const std::system_error*>(&thrown) != nullptr;
  return {system ? ErrorCode::kEnvironment : ErrorCode::kInternal, thrown.what()};
}

void add_json(CLI::App& verb, bool& as_json) {
  verb.add_flag("--json", as_json, "Print JSON");
}

void print_as_json(const nlohmann::json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

Result<void> write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::error_code ignored;
  std::filesystem::path target = std::filesystem::canonical(path, ignored);  // of a link
  if (target.empty()) target = path;
  int failed = 0;
  if (std::filesystem::exists(target, ignored) && !std::filesystem::is_regular_file(target, ignored)) {
    errno = 0;
    std::ofstream file(target, std::ios::binary);  // a pipe or a terminal
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) failed = errno != 0 ? errno : EIO;
  } else if (auto file = NewFile::create(AT_FDCWD, target.string(), 0666); !file) {
    failed = file.error();
  } else {
    failed = file->write(bytes.data(), bytes.size());
    if (failed == 0) failed = file->replace();
  }
  if (failed == 0) return {};
  const bool full = failed == ENOSPC || failed == EDQUOT || failed == EFBIG;
  return fail(ErrorCode::kEnvironment,
              fmt::format("cannot write {}: {}; {}", path, std::strerror(failed),
                          full ? "make room there, or name a file elsewhere" : "name another file"));
}

std::string share_of_raw(std::uint64_t file, std::uint64_t raw) {
  constexpr double kMostPercent = 1000;
  const double percent = 100 * static_cast<double>(file) / std::max(static_cast<double>(raw), 1.0);
  return fmt::format("{} of {}{}", human_bytes(file), human_bytes(raw),
                     percent <= kMostPercent ? fmt::format(" ({:.1f}%)", percent) : "");
}

std::string count_of_classes(std::size_t classes) {
  return classes == 0 ? "no classes" : fmt::format("{} class{}", classes, classes == 1 ? "" : "es");
}

void reserve_stop_signals() {
  const sigset_t stop = stop_signals();
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void ConfigArguments::add_to(CLI::App& verb) {
  verb.add_option("config", file, "Configuration file (YAML)")->type_name(kPath)->required();
  verb.add_option("--set", settings,
                  "Override a value of the configuration: --set streams.train.batch_size=32 (repeatable)")
      ->allow_extra_args(false);
}

Result<void> not_data(const std::string& file) {
  const std::string why = source::why_no_configuration(file);
  if (why.empty()) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} {}", file, why));
}

Result<config::Config> ConfigArguments::load() const {
  if (auto text = not_data(file); !text) return fail(text.error());
  std::vector<config::Override> flags;
  for (const std::string& setting : settings) {
    auto flag = config::parse_flag(setting);
    if (!flag) return tl::make_unexpected(flag.error());
    flags.push_back(std::move(*flag));
  }
  for (const std::string& value : defaults) {
    auto flag = config::parse_flag(value, "--default");
    if (!flag) return tl::make_unexpected(flag.error());
    flag->fallback = true;
    flags.push_back(std::move(*flag));
  }
  return config::load(file, flags);
}

}  // namespace headrace::server::verbs

namespace {

/// For a mistyped verb, CLI11 reports that one is missing. Empty: it is a verb, or an option.
std::optional<headrace::Error> wrong_verb(const CLI::App& app, const std::string& name) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(verb->get_name());
  if (name.starts_with('-') || std::find(verbs.begin(), verbs.end(), name) != verbs.end())
    return std::nullopt;
  const std::string meant = headrace::nearest(name, verbs);
  return headrace::Error{headrace::ErrorCode::kInvalidArgument,
                         fmt::format("there is no verb `{}`; {}", name,
                                     meant.empty() ? fmt::format("verbs: {}", fmt::join(verbs, ", "))
                                                   : fmt::format("did you mean `{}`?", meant))};
}

/// The verb that was given, as a user calls it.
std::string command_of(const CLI::App& app) {
  const auto verbs = app.get_subcommands();
  return verbs.empty() ? "headrace" : "headrace " + verbs.front()->get_name();
}

/// CLI11's message for an error of the command line, in the words of the other messages.
std::string explain(const CLI::App& app, const CLI::Error& error) {
  const std::string command = command_of(app);
  const auto extras = app.remaining(true);
  const auto verbs = app.get_subcommands();
  const CLI::App& verb = verbs.empty() ? app : *verbs.front();
  const auto option = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& word) { return word.starts_with("-"); });
  if (option != extras.end()) {
    std::vector<std::string> known;
    for (const CLI::Option* one : verb.get_options())
      if (!one->get_positional()) known.push_back(one->get_name());
    const std::string name = option->substr(0, option->find('='));
    const std::string near = headrace::nearest(name, known);
    return fmt::format("{} has no option {}{}", command, name,
                       near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
  }
  const bool complete = error.get_name() != "RequiredError";
  if (complete && !extras.empty() && verb.get_option_no_throw("--address") != nullptr)
    return fmt::format("unexpected argument `{0}`; a server is named by its directory: `{1} --address {0}`",
                       extras.front(), command);
  if (!extras.empty()) return fmt::format("{}: unexpected argument '{}'", command, extras.front());
  if (command == "headrace" && error.get_name() == "RequiredError")
    return "name a verb, such as check or serve";
  return error.what();
}

headrace::Error wrong_call(const CLI::App& app, const CLI::Error& error) {
  const std::string command = command_of(app);
  return {headrace::ErrorCode::kInvalidArgument,
          fmt::format("{}; `{} --help` lists {}", explain(app, error), command,
                      command == "headrace" ? "verbs and options" : "the options")};
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int headrace_run(int argc, char** argv) {
  using namespace headrace::server;
  std::signal(SIGXFSZ, SIG_IGN);  // the errors of write() and ftruncate() report the limit of file sizes
  CLI::App app{"Headrace: one server decodes and augments samples for every trainer on the machine",
               "headrace"};
  app.footer(
      "`headrace VERB --help` lists the options of a verb. Exit status: 0: success; 2: wrong arguments or "
      "configuration; 3: another error; 130 or 143: a signal stopped pack or bench.");
  app.set_version_flag("--version", std::string("headrace ") + headrace::kVersion);
  app.require_subcommand(1);
  int exit_code = 0;
  verbs::add_serve(app, exit_code);
  verbs::add_check(app, exit_code);
  verbs::add_pack(app, exit_code);
  verbs::add_preview(app, exit_code);
  verbs::add_doctor(app, exit_code);
  verbs::add_inspect(app, exit_code);
  verbs::add_verify(app, exit_code);
  verbs::add_schema(app, exit_code);
  verbs::add_bench(app, exit_code);
  verbs::add_health(app, exit_code);
  verbs::add_ls(app, exit_code);
  verbs::add_top(app, exit_code);
  verbs::add_stats(app, exit_code);
  verbs::add_sample(app, exit_code);
  verbs::add_drain(app, exit_code);
  verbs::add_completion(app, exit_code);
  // Commands may wait for the reader of their output; serve() replaces this log.
  log::set_sink(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (argc > 1)
    if (const auto wrong = wrong_verb(app, argv[1])) return verbs::report(*wrong);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // of --help or --version
    const std::vector<std::string> words(argv + 1, argv + argc);
    return verbs::report_call(
        wrong_call(app, error),
        !words.empty() && words.front() == "check" && std::count(words.begin(), words.end(), "--json") > 0);
  } catch (const std::exception& error) {
    return verbs::report(verbs::error_of(error));
  }
  // Output was buffered until here: a full disk shows only now.
  if (std::fflush(stdout) != 0 && exit_code == 0)
    return verbs::report({headrace::ErrorCode::kEnvironment,
                          fmt::format("standard output cannot be written: {}", std::strerror(errno))});
  return exit_code;
}
