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

/// How many trainers each decoded sample served; null before one was decoded and one granted.
inline nlohmann::json sharing_factor(double granted, double decoded) {
  return decoded > 0 && granted > 0 ? nlohmann::json(granted / decoded) : nlohmann::json();
}

/// The workers' time by stage ("read", "decode", "transform"): fractions of their sum, or zeros.
inline nlohmann::json stage_fractions(const nlohmann::json& stream, const nlohmann::json& before) {
  const nlohmann::json& past = object_in(before, "stage_seconds");
  nlohmann::json fractions = nlohmann::json::object();
  double all = 0;
  for (const auto& [stage, seconds] : stream.at("stage_seconds").items()) {
    const double spent = growth(stream.at("stage_seconds"), past, stage.c_str());
    fractions[stage] = spent;
    all += spent;
  }
  for (nlohmann::json& spent : fractions) spent = all > 0 ? spent.get<double>() / all : 0.0;
  return fractions;
}

}  // namespace headrace::server::status
