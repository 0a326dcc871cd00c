// What verbs share that query a running server.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "headrace/client.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {

/// --address and --timeout.
struct Address {
  std::string address;
  double timeout = 5;

  void add_to(CLI::App& verb);
  /// Says on a terminal that it waits, if there is no server.
  [[nodiscard]] Result<Client> connect() const;
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
Result<nlohmann::json> stats_of(Client& client);

}  // namespace headrace::server::verbs
