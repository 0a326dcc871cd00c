#include "server/config/config.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "clientlib/base/default_directory.h"
#include "server/config/document.h"
#include "server/config/extends.h"
#include "server/config/overrides.h"
#include "server/config/read.h"
#include "server/config/schema.h"
#include "server/config/shorthand.h"

namespace headrace::server::config {

using nlohmann::json;

namespace {

/// Real configurations have a few KiB. The limit ends the reading of devices, too, such as /dev/zero.
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

std::filesystem::path folder_of(const std::string& name) {
  std::error_code ignored;
  const auto whole = std::filesystem::absolute(name, ignored);
  return whole.parent_path();
}

}  // namespace

std::string Problem::to_string() const {
  std::string out = config::to_string(Place{file, line, column}) + ": ";
  if (!path.empty()) out += path + ": ";
  out += message;
  if (!suggestion.empty()) out += fmt::format("; did you mean \"{}\"?", suggestion);
  return out;
}

namespace {

/// The valid keys of the map at `at`; of `transforms`, those before the first invalid one.
json sound_keys(const Document& document, const Pointer& at) {
  json out = json::object();
  for (const auto& [key, value] : document.value.at(at).items()) {
    if (document.faults.sound(at / key)) {
      out[key] = value;
    } else if (key == "transforms" && value.is_array()) {
      json& begin = out[key] = json::array();
      while (begin.size() < value.size() && document.faults.sound(at / key / std::to_string(begin.size())))
        begin.push_back(value[begin.size()]);
    }
  }
  return out;
}

StreamPlaces places_of(const Document& document, const Pointer& at, std::size_t transforms) {
  StreamPlaces out{to_string(document.key_place(at)),
                   to_string(document.value_place(at / "batch_size")),
                   to_string(document.value_place(at / "sharing" / "wait_for")),
                   {}};
  for (std::size_t i = 0; i < transforms; ++i)
    out.transforms.push_back(to_string(document.value_place(at / "transforms" / std::to_string(i))));
  return out;
}

/// Reads and checks the valid parts. The result is complete only if nothing is wrong.
Config read(Document& document, const std::filesystem::path& folder, const Environment& environment) {
  Config out;
  const auto reading = [&](const Pointer& at) { return described::Reading(folder, at, &document.faults); };
  const Pointer server("/server");
  if (!document.value.contains(server)) {
    out.server = read_server(json::object(), reading(server), environment);
  } else if (document.value.at(server).is_object()) {
    out.server = read_server(sound_keys(document, server), reading(server), environment);
  }
  std::vector<std::string> names;
  const json sources = document.value.value("sources", json::object());
  if (sources.is_object())
    for (const auto& [name, value] : sources.items()) {
      const Pointer at = Pointer("/sources") / name;
      names.push_back(name);
      if (!value.is_object() || !value.contains("type") || !document.faults.sound(at / "type")) continue;
      auto source = read_source(sound_keys(document, at), reading(at));
      if (document.faults.sound(at)) out.sources[name] = std::move(source);
    }
  check_composites(document, out.sources);
  const json streams = document.value.value("streams", json::object());
  if (streams.is_object())
    for (const auto& [name, value] : streams.items()) {
      if (!value.is_object()) continue;
      const Pointer at = Pointer("/streams") / name;
      const json sound = sound_keys(document, at);
      StreamConfig stream = read_stream(sound, reading(at));
      stream.places = places_of(document, at, stream.plan.chain.transforms.size());
      apply_feed(out, stream);
      check_stream(stream, sound, reading(at), out, sources.is_object() ? &names : nullptr);
      out.streams[name] = std::move(stream);
    }
  return out;
}

}  // namespace

Outcome examine(std::string_view text, const std::string& name, std::span<const Override> flags,
                const Environment& environment) {
  Document document(name);
  if (!read_yaml(text, name, document)) return {std::nullopt, document.problems()};
  apply_shorthand(document);
  apply_environment(environment, document);
  apply_flags(flags, document);
  apply_shorthand(document);  // of the overrides
  apply_extends(document);
  validate(document);
  auto config = read(document, folder_of(name), environment);
  config.file = name;
  auto problems = document.problems();
  if (!problems.empty()) return {std::nullopt, std::move(problems)};
  return {std::move(config), {}};
}

Result<Config> parse(std::string_view text, const std::string& name, std::span<const Override> flags,
                     const Environment& environment) {
  auto outcome = examine(text, name, flags, environment);
  if (outcome.config) return std::move(*outcome.config);
  std::vector<std::string> lines;
  for (const auto& problem : outcome.problems) lines.push_back(problem.to_string());
  return fail(ErrorCode::kConfigInvalid, fmt::format("{}", fmt::join(lines, "\n")));
}

Result<Config> load(const std::filesystem::path& path, std::span<const Override> flags,
                    const Environment& environment) {
  const std::string proposed = "`headrace check DATASET > headrace.yaml` proposes one for a dataset";
  std::error_code status;
  if (std::filesystem::is_directory(path, status))
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{}: is a folder; give a YAML file: {}", path.string(), proposed));
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    const int error = errno;
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{}: cannot be read: {}{}", path.string(), std::strerror(error),
                            error == ENOENT ? "; " + proposed : ""));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kMaxFileBytes)
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{}: expected a configuration of at most {} MiB, found a larger file",
                            path.string(), kMaxFileBytes >> 20));
  if (stream.bad()) return fail(ErrorCode::kConfigInvalid, fmt::format("{}: reading failed", path.string()));
  return parse(text, path.string(), flags, environment);
}

std::filesystem::path default_directory(const Environment& environment) {
  static constexpr std::string_view kVariable = "XDG_RUNTIME_DIR=";
  for (const auto& entry : environment)
    if (entry.starts_with(kVariable)) return headrace::default_directory(entry.substr(kVariable.size()));
  return headrace::default_directory("");
}

}  // namespace headrace::server::config
