// The bridge's side of bridge.sock, for tests: makes the ordered rows with a Maker in this process, and sends
// any other message.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "clientlib/ring/fd_passing.h"
#include "headrace/maker.h"

namespace headrace::testing {

class BridgePeer {
 public:
  explicit BridgePeer(const std::filesystem::path& directory)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (directory / "bridge.sock").string();
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      socket_.reset();
  }

  void say(const nlohmann::json& message) { say_bytes(message.dump()); }
  void say_bytes(const std::string& bytes) { (void)ring::send_packet(socket_.get(), bytes, {}); }
  /// The next packet; null if none comes, or at the end.
  nlohmann::json hear(std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    auto packet = ring::receive_packet(socket_.get(), patience);
    return packet ? nlohmann::json::parse(packet->bytes) : nlohmann::json();
  }
  /// Sends the hello and reads the streams.
  void greet(std::uint32_t most) {
    say({{"bridge", 1}, {"most", most}});
    const nlohmann::json answer = hear();
    ASSERT_TRUE(answer.contains("streams")) << answer;
    for (std::size_t i = 0; i < answer["streams"].get<std::size_t>(); ++i) streams.push_back(hear());
  }
  /// The next order; releases before it free what was made. Null: none came.
  nlohmann::json order(std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    for (;;) {
      nlohmann::json message = hear(patience);
      if (message.is_null() || message.contains("order")) return message;
      if (message.contains("release")) {
        made_.erase(message["release"].get<std::uint64_t>());
        ++released;
      } else {
        others.push_back(message);
      }
    }
  }
  struct Made {
    std::vector<std::vector<std::byte>> fields;
    std::vector<std::uint64_t> samples;
    std::vector<std::uint8_t> replaced;
  };
  /// Makes an order's rows; the caller may spoil them before it calls send().
  Made& make(const nlohmann::json& order, const Maker& maker) {
    const BatchView rows =
        or_throw(maker.rows(order["epoch"].get<std::uint64_t>(), order["first"].get<std::uint64_t>(),
                            order["rows"].get<std::uint32_t>()));
    Made made;
    for (const FieldSpec& spec : rows.fields()) {
      const FieldView field = or_throw(rows.field(spec.name));
      made.fields.emplace_back(field.data, field.data + field.bytes());
    }
    for (const RowInfo& row : rows.all_rows()) {
      made.samples.push_back(row.sample_index);
      made.replaced.push_back(row.replaced);
    }
    return made_[order["order"].get<std::uint64_t>()] = std::move(made);
  }
  void send(const nlohmann::json& order, const std::string& node) {
    const auto address = [](const void* data) { return reinterpret_cast<std::uint64_t>(data); };
    const Made& made = made_.at(order["order"].get<std::uint64_t>());
    std::vector<std::uint64_t> fields;
    for (const auto& field : made.fields) fields.push_back(address(field.data()));
    say({{"made", order["order"]},
         {"node", node},
         {"received", 1000},
         {"sent", 10},
         {"fields", fields},
         {"samples", address(made.samples.data())},
         {"replaced", address(made.replaced.data())}});
  }
  void hang_up() { socket_.reset(); }

  std::vector<nlohmann::json> streams, others;  ///< `others`: neither orders nor releases
  std::size_t released = 0;

 private:
  UniqueFd socket_;
  std::map<std::uint64_t, Made> made_;
};

}  // namespace headrace::testing
