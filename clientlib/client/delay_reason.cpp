#include "clientlib/client/delay_reason.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "clientlib/client/exchange.h"

namespace headrace::client {
namespace {

using nlohmann::json;

constexpr double kWorthAsking = 0.2;  // seconds; a caller with a shorter timeout polls
constexpr std::chrono::milliseconds kStatsTimeout{300};

std::uint32_t lag_of(const json& client) {
  return client.at("lag").get<std::uint32_t>();
}

bool is_due(const json& client, const Cursor& due) {
  const json& next = client.at("next");
  return next.at("epoch").get<std::uint64_t>() == due.epoch &&
         next.at("batch").get<std::uint64_t>() == due.batch;
}

/// The clients that are farthest behind, for a message; clients that wait for batch `due` themselves are left
/// out. Empty if there are none.
std::string slowest_clients(const json& clients, const Cursor& due) {
  std::uint32_t most = 1;
  for (const json& client : clients) most = std::max(most, lag_of(client));
  std::vector<std::string> names;
  for (const json& client : clients) {
    if (lag_of(client) == most && !is_due(client, due))
      names.push_back(fmt::format("`{}`", client.at("client").get<std::string>()));
  }
  if (names.empty()) return {};
  return fmt::format("client{} {}, {} batch{} behind", names.size() == 1 ? "" : "s", fmt::join(names, ", "),
                     most, most == 1 ? "" : "es");
}

}  // namespace

std::string reason_in_stats(const json& stream, const Cursor& due, std::string_view self) {
  if (const auto awaited = stream.at("awaited_clients").get<std::uint32_t>(); awaited > 0) {
    const json limit = stream.value("begins_in_seconds", json());
    return fmt::format("The stream begins once {} more client{} called next() (sharing.wait_for){}", awaited,
                       awaited == 1 ? " has" : "s have",
                       limit.is_number()
                           ? fmt::format(", or in at most {:.0f} s without {} (sharing.wait_timeout)",
                                         limit.get<double>(), awaited == 1 ? "it" : "them")
                           : "");
  }
  const std::string clients = slowest_clients(stream.at("clients"), due);
  if (clients.empty()) return {};
  const auto waits = [&](const json& client) {
    return is_due(client, due) && client.value("waits_for_one_behind", false);
  };
  if (std::any_of(stream.at("clients").begin(), stream.at("clients").end(), waits))
    return fmt::format(
        "{} is ahead and yields to {}, until they share rows (at most sharing.patience in total; 0s: never)",
        self, clients);
  if (!stream.at("clients_wait_for_each_other").get<bool>()) return {};
  return fmt::format(
      "The stream waits for {} (sharing.on_lag: wait), which must call next(), release its batches, or exit",
      clients);
}

std::string reason_for_delay(const Address& server, const std::string& stream, const Cursor& due,
                             const Deadline& waited, const Interrupt& interrupt) {
  if (waited.seconds_spent() >= kWorthAsking) {
    const auto answer = exchange(server, "stats", json::object(), Deadline(kStatsTimeout), interrupt);
    try {
      if (std::string why = answer ? reason_in_stats(answer->body.at("streams").at(stream), due) : "";
          !why.empty())
        return why;
    } catch (const json::exception&) {  // the server has another version
    }
  }
  return "The stream may be slow (`headrace top` names the bottleneck), or may wait for another client "
         "(sharing.wait_for, sharing.patience, sharing.on_lag: wait): `headrace ls` shows each client's "
         "position, and what it waits for";
}

}  // namespace headrace::client
