#include "server/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <tuple>

#include "clientlib/base/default_directory.h"
#include "server/config/document.h"
#include "server/config/overrides.h"
#include "server/config/read.h"
#include "server/config/schema.h"

namespace headrace::server::config {
namespace {

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

Outcome examine(std::string_view text, const std::string& name, std::span<const Override> flags,
                const Environment& environment) {
  Outcome out;
  Document document(name);
  if (!read_yaml(text, name, document, out.problems)) return out;
  apply_environment(environment, document, out.problems);
  apply_flags(flags, document, out.problems);
  validate(document, out.problems);
  auto config = read_and_check(document, folder_of(name), environment, out.problems);
  if (out.problems.empty()) {
    config.file = name;
    out.config = std::move(config);
  }
  std::stable_sort(out.problems.begin(), out.problems.end(), [](const Problem& a, const Problem& b) {
    return std::tuple(a.line == 0, a.line, a.column) < std::tuple(b.line == 0, b.line, b.column);
  });
  return out;
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
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (stream.bad()) return fail(ErrorCode::kConfigInvalid, fmt::format("{}: reading failed", path.string()));
  return parse(text, path.string(), flags, environment);
}

std::filesystem::path default_directory(const Environment& environment) {
  static constexpr std::string_view kVariable = "XDG_RUNTIME_DIR=";
  for (const auto& entry : environment)
    if (entry.starts_with(kVariable)) return headrace::default_directory(entry.substr(kVariable.size()));
  return headrace::default_directory("");
}

std::string_view name_of(Delivery delivery) {
  return delivery == Delivery::kShard ? "shard" : "broadcast";
}
std::string_view name_of(OnError policy) {
  return policy == OnError::kFail ? "fail" : "replace";
}
std::string_view name_of(OnLag policy) {
  return policy == OnLag::kWait ? "wait" : "detach";
}
std::string_view name_of(Access access) {
  return access == Access::kReadOnly ? "read_only" : "read_write";
}

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return "trace";
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "?";
}

}  // namespace headrace::server::config
