// How counters grew between two `stats` of a server (session/collector_stats.cpp).
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace headrace::server::status {

/// All of it if the counter did not exist before; 0 if it fell, because its owner has been replaced.
inline double growth(const nlohmann::json& now, const nlohmann::json& before, const char* counter) {
  return std::max(0.0, now.at(counter).get<double>() - before.value(counter, 0.0));
}

/// `of[key]`; an empty object if it is missing.
inline const nlohmann::json& object_in(const nlohmann::json& of, const std::string& key) {
  static const nlohmann::json none = nlohmann::json::object();
  const auto found = of.find(key);
  return found == of.end() ? none : *found;
}

/// The stream in `stats`; empty if it is missing.
inline const nlohmann::json& stream_in(const nlohmann::json& stats, const std::string& name) {
  return object_in(object_in(stats, "streams"), name);
}

/// The client in the stream's figures; empty if it was not attached.
inline const nlohmann::json& client_in(const nlohmann::json& stream, const std::string& name) {
  static const nlohmann::json none = nlohmann::json::object();
  for (const nlohmann::json& client : object_in(stream, "clients"))
    if (client.at("client") == name) return client;
  return none;
}

}  // namespace headrace::server::status
