#include "server/metrics/http_query.h"

#include <civetweb.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace headrace::server::metrics {
namespace {

constexpr std::size_t kLongest = 256;  ///< bytes of a name or value, which messages may repeat

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

Result<std::string> decoded(std::string_view text) {
  std::string out(text.size() + 1, '\0');
  const int size =
      mg_url_decode(text.data(), static_cast<int>(text.size()), out.data(), static_cast<int>(out.size()), 1);
  out.resize(static_cast<std::size_t>(std::max(0, size)));
  if (out.size() > kLongest)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("expected names and values of at most {} bytes in the query, found {}", kLongest,
                            out.size()));
  if (!is_utf8(out) || out.find('\0') != std::string::npos)
    return fail(ErrorCode::kInvalidArgument, "expected UTF-8 text without NUL in the query");
  return out;
}

std::string names_of(const std::vector<HttpParameter>& known) {
  std::string names;
  for (const HttpParameter& parameter : known) names += (names.empty() ? "" : ", ") + parameter.name;
  return names.empty() ? "none" : names;
}

}  // namespace

Result<HttpParameters> parse_query(std::string_view query, const std::vector<HttpParameter>& known) {
  HttpParameters found;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    auto name = decoded(pair.substr(0, equals));
    if (!name) return fail(name.error());
    auto value = decoded(pair.substr(std::min(equals + 1, pair.size())));
    if (!value) return fail(value.error());
    const bool is_known =
        std::any_of(known.begin(), known.end(), [&](const HttpParameter& one) { return one.name == *name; });
    if (!is_known)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("unknown parameter `{}`; expected: {}", *name, names_of(known)));
    if (value->empty())
      return fail(ErrorCode::kInvalidArgument, fmt::format("parameter `{}` is empty", *name));
    if (!found.emplace(*name, std::move(*value)).second)
      return fail(ErrorCode::kInvalidArgument, fmt::format("parameter `{}` is given twice", *name));
  }
  for (const HttpParameter& parameter : known)
    if (parameter.required && !found.contains(parameter.name))
      return fail(ErrorCode::kInvalidArgument, fmt::format("parameter `{}` is missing", parameter.name));
  return found;
}

}  // namespace headrace::server::metrics
