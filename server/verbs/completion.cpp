// `headrace completion`: completion of verbs, options and file names in a shell, from the program's own list.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

/// In the scripts: file names are completed here.
constexpr const char* kFiles = "FILES";

struct Completed {
  std::string name, help;
  bool takes_value = true;
  std::string words;  ///< of its value: choices, kFiles, or none
};

struct Verb {
  std::string name, help;
  std::vector<Completed> options;
  std::string words;  ///< of the arguments that are not options
};

std::string words_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // "PATH", or "TEXT:{one,other}"
  if (type.starts_with("PATH")) return kFiles;
  const auto open = type.find(":{");
  if (open == std::string::npos) return {};
  std::string choices = type.substr(open + 2, type.find('}') - open - 2);
  std::replace(choices.begin(), choices.end(), ',', ' ');
  return choices;
}

Verb describe(const CLI::App& app) {
  Verb out{app.get_name(), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional())
      out.words = words_of(*option);
    else
      out.options.push_back({option->get_name(), option->get_description(),
                             option->get_items_expected_max() > 0, words_of(*option)});
  }
  return out;
}

std::vector<Verb> describe_verbs(const CLI::App& app) {
  std::vector<Verb> out;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    out.push_back(describe(*verb));
  return out;
}

template <class T>
std::string names(const std::vector<T>& of) {
  std::string out;
  for (const T& one : of) out += (out.empty() ? "" : " ") + one.name;
  return out;
}

/// For bash and zsh: sets `candidates` by the verb and the word before the one to complete.
std::string cases(const std::vector<Verb>& verbs, const std::string& current) {
  std::string out;
  for (const Verb& verb : verbs) {
    for (const Completed& option : verb.options)
      if (option.takes_value)
        out += fmt::format("    '{} {}') candidates='{}' ;;\n", verb.name, option.name, option.words);
    out += fmt::format("    '{} '*) case {} in -*) candidates='{}' ;; *) candidates='{}' ;; esac ;;\n",
                       verb.name, current, names(verb.options), verb.words);
  }
  return out;
}

/// `text` in single quotes, for a shell in which '\'' stands for a quote.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash(const std::vector<Verb>& verbs) {
  return fmt::format(R"(_headrace() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} candidates=
  if [ "$COMP_CWORD" = 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$word")
    return
  fi
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{}  esac
  if [ "$candidates" = {} ]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
  else
    mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$word")
  fi
}}
complete -F _headrace headrace
)",
                     names(verbs), cases(verbs, "\"$word\""), kFiles);
}

std::string zsh(const std::vector<Verb>& verbs) {
  std::string described;
  for (const Verb& verb : verbs) described += fmt::format("    {}\n", quoted(verb.name + ":" + verb.help));
  return fmt::format(R"(#compdef headrace
_headrace() {{
  local -a verbs
  local candidates=
  verbs=(
{}  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
    return
  fi
  case "${{words[2]}} ${{words[CURRENT - 1]}}" in
{}  esac
  if [[ $candidates == {} ]]; then _files; else compadd -- ${{=candidates}}; fi
}}
# In a folder of $fpath this file is the function; otherwise it is sourced.
if [[ ${{funcstack[1]}} == _headrace ]]; then
  _headrace "$@"
else
  if (( ! ${{+functions[compdef]}} )); then autoload -Uz compinit && compinit -i; fi
  compdef _headrace headrace
fi
)",
                     described, cases(verbs, "\"$PREFIX\""), kFiles);
}

std::string fish(const std::vector<Verb>& verbs) {
  const auto values = [](const std::string& words) {
    return words == kFiles ? std::string(" -F") : words.empty() ? " -f" : fmt::format(" -f -a '{}'", words);
  };
  std::string out = "complete -c headrace -n __fish_use_subcommand -f\n";
  for (const Verb& verb : verbs) {
    out += fmt::format("complete -c headrace -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                       quoted(verb.help));
    const auto within = fmt::format("complete -c headrace -n '__fish_seen_subcommand_from {}'", verb.name);
    out += fmt::format("{}{}\n", within, values(verb.words));
    for (const Completed& option : verb.options)
      out += fmt::format("{} {} {}{} -d {}\n", within, option.name.starts_with("--") ? "-l" : "-s",
                         option.name.substr(option.name.find_first_not_of('-')),
                         option.takes_value ? " -r" + values(option.words) : "", quoted(option.help));
  }
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
