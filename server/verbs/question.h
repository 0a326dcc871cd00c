// What verbs share that query a running server.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "clientlib/client/address.h"
#include "clientlib/wire/protocol.h"
#include "headrace/client.h"
#include "server/log/sink.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {

/// --address and --timeout.
struct Address {
  std::string address;
  double timeout = 5;

  void add_to(CLI::App& verb) {
    const CLI::Validator seconds(
        [](std::string& text) {
          double value = 0;
          const bool sound = CLI::detail::lexical_cast(text, value) && value >= 0.001 && value <= 1e9;
          return sound ? std::string() : "'" + text + "' is not a number of seconds from 0.001 to 1e9";
        },
        "SECONDS");
    verb.add_option("--address", address,
                    "The server's directory (default: HEADRACE_ADDRESS, then the server's default)")
        ->type_name(kPath);
    verb.add_option("--timeout", timeout, "Seconds to wait for the server (default: 5)")->check(seconds);
  }
  [[nodiscard]] Result<Client> connect() const {
    if (const auto place = client::resolve_address(address, {}); place && ::isatty(STDERR_FILENO) == 1)
      if (!std::filesystem::exists(std::filesystem::path(place->directory) / wire::kControlSocket))
        fmt::print(stderr, "no server in {} yet; waiting up to {:g} s for one\n",
                   log::escaped(place->directory), timeout);
    return Client::connect(
        {.address = address, .timeout = std::chrono::milliseconds(static_cast<long>(timeout * 1000))});
  }
};

/// Adds a verb that connects, then calls `what`.
template <class F>
CLI::App* add_question(CLI::App& app, const char* name, const char* help, int& exit_code, F what) {
  auto address = std::make_shared<Address>();
  CLI::App* verb = app.add_subcommand(name, help);
  address->add_to(*verb);
  verb->callback([address, what, &exit_code] {
    auto client = address->connect();
    const Result<void> done = client ? what(*client) : tl::make_unexpected(client.error());
    exit_code = done ? 0 : report(done.error());
  });
  return verb;
}

/// The server's figures: of each stream by name in "streams", and of the streams that share rows in
/// "sharing".
inline Result<nlohmann::json> stats_of(Client& client) {
  const auto stats = client.stats();
  if (!stats) return tl::make_unexpected(stats.error());
  return nlohmann::json::parse(*stats, nullptr, false);
}

}  // namespace headrace::server::verbs
