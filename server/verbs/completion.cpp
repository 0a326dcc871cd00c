// `headrace completion`: completion of verbs, options and file names in a shell, from the program's own list.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

/// A verb, or the program itself, and its options.
struct Completed {
  std::string name, help;
  std::vector<std::pair<std::string, std::string>> options;  ///< "--name" and what it does
};

Completed describe(const CLI::App& app) {
  Completed out{app.get_name(), app.get_description(), {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_positional()) out.options.emplace_back(option->get_name(), option->get_description());
  return out;
}

std::vector<Completed> describe_verbs(const CLI::App& app) {
  std::vector<Completed> out;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    out.push_back(describe(*verb));
  return out;
}

std::string joined(const std::vector<Completed>& verbs) {
  std::string out;
  for (const Completed& verb : verbs) out += (out.empty() ? "" : " ") + verb.name;
  return out;
}

std::string options_of(const Completed& verb) {
  std::string out;
  for (const auto& [name, help] : verb.options) out += (out.empty() ? "" : " ") + name;
  return out;
}

/// `text` in single quotes, for a shell in which '\'' stands for a quote.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash(const std::vector<Completed>& verbs) {
  std::string cases;
  for (const Completed& verb : verbs)
    cases += fmt::format("    {}) words='{}' ;;\n", verb.name, options_of(verb));
  return fmt::format(R"(_headrace() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words=
  if [ "$COMP_CWORD" = 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case ${{COMP_WORDS[1]}},$word in
    completion,*) mapfile -t COMPREPLY < <(compgen -W 'bash fish zsh' -- "$word") ;;
    *,-*) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$word")
       compopt -o filenames 2>/dev/null ;;
  esac
}}
complete -F _headrace headrace
)",
                     joined(verbs), cases);
}

std::string zsh(const std::vector<Completed>& verbs) {
  std::string names, cases;
  for (const Completed& verb : verbs) {
    names += fmt::format("    {}\n", quoted(verb.name + ":" + verb.help));
    cases += fmt::format("    {}) options=({}) ;;\n", verb.name, options_of(verb));
  }
  return fmt::format(R"(#compdef headrace
_headrace() {{
  local -a verbs options
  verbs=(
{}  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
    return
  fi
  case ${{words[2]}} in
{}  esac
  if [[ $PREFIX == -* ]]; then compadd -- $options
  elif [[ ${{words[2]}} == completion ]]; then compadd bash fish zsh
  else _files; fi
}}
# In a folder of $fpath this file is the function; otherwise it is sourced.
if [[ ${{funcstack[1]}} == _headrace ]]; then _headrace "$@"; else compdef _headrace headrace; fi
)",
                     names, cases);
}

std::string fish(const std::vector<Completed>& verbs) {
  std::string out = "complete -c headrace -n __fish_use_subcommand -f\n";
  for (const Completed& verb : verbs) {
    out += fmt::format("complete -c headrace -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                       quoted(verb.help));
    for (const auto& [name, help] : verb.options)
      out += fmt::format("complete -c headrace -n '__fish_seen_subcommand_from {}' {} {} -d {}\n", verb.name,
                         name.starts_with("--") ? "-l" : "-s", name.substr(name.find_first_not_of('-')),
                         quoted(help));
  }
  out += "complete -c headrace -n '__fish_seen_subcommand_from completion' -f -a 'bash fish zsh'\n";
  return out;
}

}  // namespace

void add_completion(CLI::App& app, int& exit_code) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(
      "completion", "Print a script that completes verbs and options: source <(headrace completion bash)");
  verb->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->callback([&app, shell, &exit_code] {
    const auto verbs = describe_verbs(app);
    fmt::print("{}", *shell == "bash" ? bash(verbs) : *shell == "zsh" ? zsh(verbs) : fish(verbs));
    exit_code = 0;
  });
}

}  // namespace headrace::server::verbs
