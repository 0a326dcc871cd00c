#include "server/config/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "server/described/units.h"
#include "server/remote/url.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

/// Where in a source paths of data stand.
std::vector<Pointer> places(const json& source) {
  std::vector<Pointer> out;
  const auto add = [&](const Pointer& at) {
    if (source.contains(at) && source.at(at).is_string()) out.push_back(at);
  };
  const auto type = source.at("type").get<std::string>();
  add(Pointer("/path"));
  if (type == "webdataset" && source.at("path").is_array())
    for (std::size_t i = 0; i < source["path"].size(); ++i) add(Pointer("/path") / std::to_string(i));
  if (type == "manifest") add(Pointer("/root"));
  if (type == "idx") {
    add(Pointer("/images"));
    add(Pointer("/labels"));
  }
  // With a path, the fields of npy are names of arrays.
  const json fields = source.value("fields", json::object());
  if (type == "paired_folders" || (type == "npy" && !source.contains("path")))
    for (const auto& [name, ignored] : fields.items()) {
      add(Pointer("/fields") / name);
      add(Pointer("/fields") / name / "path");
    }
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
std::string refusal(const std::string& type, const std::string& url) {
  if (type == "lmdb")
    return "a database is mapped, which no network can do: copy it to a local disk; over the network, "
           "WebDataset "
           "shards are read";
  if (type == "paired_folders")
    return "pairs are looked for in folders, and not over the network: list them in a manifest with `root: "
           "URL`";
  if (type == "image_folder" && !remote::is_s3(url))
    return "HTTP has no listings of folders: take s3://, a manifest with `root: URL`, or WebDataset shards";
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
  const json s3 = source.value("s3", json::object());
  out.s3.endpoint = s3.value("endpoint", "");
  out.s3.region = s3.value("region", "");
  out.s3.anonymous = s3.value("anonymous", false);
  if (source.contains("tls_ca")) out.tls_ca = absolute(folder, source["tls_ca"].get<std::string>());
  const auto type = source.at("type").get<std::string>();
  // Of a manifest, the images are what is read again and again.
  const std::string images = source.contains("root") ? source["root"].get<std::string>()
                             : type == "manifest"    ? source["path"].get<std::string>()
                                                     : "";
  out.by_sample = type == "webdataset" || type == "image_folder" || remote::is_url(images);
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
  const auto type = value.at("type").get<std::string>();
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
    if (auto why = refusal(type, text); !why.empty())
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
