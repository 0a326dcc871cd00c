#include "server/verbs/question.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "clientlib/client/address.h"
#include "clientlib/wire/protocol.h"
#include "server/log/sink.h"

namespace headrace::server::verbs {
namespace {

/// Whether there is certainly no server. An error is the client's to report.
bool is_absent(const client::Address& server) {
  namespace fs = std::filesystem;
  std::error_code error;
  return fs::status(fs::path(server.directory) / wire::kControlSocket, error).type() ==
         fs::file_type::not_found;
}

}  // namespace

void Address::add_to(CLI::App& verb) {
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

Result<Client> Address::connect() const {
  if (const auto server = client::resolve_address(address, {}); server && ::isatty(STDERR_FILENO) == 1)
    if (is_absent(*server))
      fmt::print(stderr, "no server in {} yet; waiting up to {:g} s for one\n",
                 log::escaped(server->directory), timeout);
  return Client::connect(
      {.address = address, .timeout = std::chrono::milliseconds(static_cast<long>(timeout * 1000))});
}

Result<nlohmann::json> stats_of(Client& client) {
  const auto stats = client.stats();
  if (!stats) return tl::make_unexpected(stats.error());
  return nlohmann::json::parse(*stats, nullptr, false);
}

}  // namespace headrace::server::verbs
