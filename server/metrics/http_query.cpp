#include "server/metrics/http_query.h"

#include <civetweb.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace headrace::server::metrics {
namespace {

constexpr std::size_t kMostParameters = 16;
constexpr std::size_t kLongest = 256;  ///< bytes of a name or value, which messages may repeat

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

Result<std::string> decoded(const char* text) {
  std::string out(text == nullptr ? 0 : std::strlen(text) + 1, '\0');
  const int size = out.empty() ? 0
                               : mg_url_decode(text, static_cast<int>(out.size() - 1), out.data(),
                                               static_cast<int>(out.size()), 1);
  out.resize(static_cast<std::size_t>(std::max(0, size)));
  if (out.size() > kLongest)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("expected names and values of at most {} bytes in the query, found {}", kLongest,
                            out.size()));
  if (!is_utf8(out)) return fail(ErrorCode::kInvalidArgument, "the query is not UTF-8");
  return out;
}

std::string names_of(const std::vector<HttpParameter>& known) {
  std::string names;
  for (const HttpParameter& parameter : known) names += (names.empty() ? "" : ", ") + parameter.name;
  return names.empty() ? "none" : names;
}

}  // namespace

Result<HttpParameters> parse_query(std::string query, const std::vector<HttpParameter>& known) {
  std::array<mg_header, kMostParameters> fields{};
  const int count = query.empty() ? 0 : mg_split_form_urlencoded(query.data(), fields.data(), fields.size());
  HttpParameters found;
  for (int i = 0; i < count; ++i) {
    auto name = decoded(fields[i].name), value = decoded(fields[i].value);
    if (!name) return fail(name.error());
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
