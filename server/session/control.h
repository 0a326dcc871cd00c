// Control: one ROUTER socket, JSON requests in, JSON replies out (clientlib/wire/protocol.h).
// Thread safety: the session thread alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "headrace/error.h"
#include "server/exec/engine.h"
#include "server/session/sessions.h"

namespace headrace::server::session {

class Control {
 public:
  Control(exec::Engine& engine, Sessions& sessions, std::function<nlohmann::json()> stats,
          std::function<void()> drain, metrics::Count& bad_messages);
  ~Control();

  Result<void> bind(const std::filesystem::path& path);
  [[nodiscard]] int fd() const;  ///< readable: call `handle` (ZeroMQ's edge-triggered descriptor)
  /// Answers what waits, for some milliseconds at a time, so that a flood holds up nobody else: true
  /// if there is more. Malformed requests are counted, answered and dropped.
  bool handle();
  void refuse_opens() { draining_ = true; }

 private:
  struct Answer {
    Result<nlohmann::json> body;
    std::string binary;  ///< second frame, may be empty
  };
  Answer answer(const std::string& op, const nlohmann::json& body);
  Answer sample(const nlohmann::json& body);

  struct Socket;
  exec::Engine& engine_;
  Sessions& sessions_;
  std::function<nlohmann::json()> stats_;
  std::function<void()> drain_;
  std::unique_ptr<Socket> socket_;
  exec::RowScratch scratch_;
  metrics::StreamCounters uncounted_;  ///< samples shown to people are not samples served
  metrics::Count& bad_messages_;
  std::uint64_t instance_ = 0;
  bool draining_ = false;
};

}  // namespace headrace::server::session
