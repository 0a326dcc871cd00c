#include "server/config/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "server/described/described.h"
#include "server/remote/url.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

/// The texts in `value` that `pattern` leads to: a JSON pointer, in which * stands for each key or item.
void find(const json& value, const std::string& pattern, const Pointer& at, std::vector<Pointer>& out) {
  if (pattern.empty()) {
    if (value.is_string()) out.push_back(at);
    return;
  }
  const auto end = pattern.find('/', 1);
  const std::string key = pattern.substr(1, end - 1),
                    rest = end == std::string::npos ? "" : pattern.substr(end);
  if (key != "*") {
    if (value.is_object() && value.contains(key)) find(value[key], rest, at / key, out);
  } else if (value.is_object()) {
    for (const auto& [name, below] : value.items()) find(below, rest, at / name, out);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) find(value[i], rest, at / std::to_string(i), out);
  }
}

/// Where in a source paths of data stand.
std::vector<Pointer> places(const json& source) {
  std::vector<Pointer> out;
  for (const std::string& pattern : type_of(source).traits.data) find(source, pattern, Pointer(), out);
  return out;
}

/// Where paths of lists of samples stand.
std::vector<Pointer> lists(const json& source) {
  std::vector<Pointer> out;
  for (const char* at : {"/list", "/indices"})
    if (source.contains(Pointer(at))) out.emplace_back(at);
  const Pointer parts("/split/lists");
  if (source.contains(parts))
    for (const auto& [name, ignored] : source.at(parts).items()) out.push_back(parts / name);
  return out;
}

/// Why this source cannot read this URL; empty: it can.
std::string refusal(const source::SourceTraits& traits, const std::string& url) {
  if (traits.refuse)
    if (auto why = traits.refuse(url); !why.empty()) return why;
  if (remote::is_s3(url) && remote::s3_name(url).bucket.empty())
    return fmt::format("\"{}\" names no bucket; write it as s3://bucket/key", url);
  if (remote::is_s3(url)) return {};
  const auto sound = remote::normalized(url);
  return sound ? "" : sound.error().message;
}

}  // namespace

std::optional<NetworkConfig> read_network(const json& source, const std::filesystem::path& folder) {
  const auto at = places(source);
  if (std::none_of(at.begin(), at.end(), [&](const Pointer& place) {
        return remote::is_url(source.at(place).get_ref<const std::string&>());
      }))
    return std::nullopt;
  NetworkConfig out;
  described::read_into(out, source, folder);
  const source::SourceTraits& traits = type_of(source).traits;
  out.by_sample = traits.by_sample && traits.by_sample(source);
  return out;
}

void check_list(const Document& document, const Pointer& at, std::vector<Problem>& problems) {
  if (remote::is_url(document.value.at(at).get_ref<const std::string&>()))
    problems.push_back(document.at_value(
        at, "is a URL (it is not shown), and such lists are read from files: fetch it first"));
}

void check_network(const Document& document, const Pointer& source, std::vector<Problem>& problems) {
  static const std::regex kOther("^[A-Za-z][A-Za-z0-9+.-]*://");
  const json& value = document.value.at(source);
  bool any = false, s3 = false;
  for (const Pointer& place : places(value)) {
    const auto& text = value.at(place).get_ref<const std::string&>();
    if (!remote::is_url(text)) {
      if (std::regex_search(text, kOther))
        problems.push_back(
            document.at_value(source / place, fmt::format("{}... is none of http://, https:// and s3://",
                                                          text.substr(0, text.find("://") + 3))));
      continue;
    }
    any = true;
    s3 = s3 || remote::is_s3(text);
    if (auto why = refusal(type_of(value).traits, text); !why.empty())
      problems.push_back(document.at_value(source / place, std::move(why)));
  }
  for (const Pointer& place : lists(value)) check_list(document, source / place, problems);
  if (value.contains("s3") && !s3)
    problems.push_back(
        document.at_key(source / "s3", "no path of this source is an s3:// URL; leave it out"));
  const json endpoint = value.value("s3", json::object()).value("endpoint", "");
  if (endpoint.get_ref<const std::string&>().find_first_of("@?#") != std::string::npos)
    problems.push_back(document.at_value(source / "s3" / "endpoint",
                                         "has more than a scheme, a host, a port and a path (it is not "
                                         "shown); keys come from the environment"));
  if (value.contains("tls_ca") && !any)
    problems.push_back(document.at_key(source / "tls_ca", "no path of this source is a URL; leave it out"));
}

}  // namespace headrace::server::config
