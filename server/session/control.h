// Control: one ROUTER socket with JSON requests and JSON replies (clientlib/wire/protocol.h).
// Thread safety: only the session thread.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/wire/protocol.h"
#include "headrace/error.h"
#include "server/exec/engine.h"
#include "server/session/sample_desk.h"
#include "server/session/sessions.h"

namespace headrace::server::session {

class Control {
 public:
  Control(exec::Engine& engine, Sessions& sessions, std::function<nlohmann::json()> stats,
          std::function<void()> drain, metrics::Count& bad_messages);
  ~Control();

  Result<void> bind(const std::filesystem::path& path);
  /// Appends the descriptors to poll. Call `handle` after every poll: ZeroMQ's descriptor is edge-triggered.
  void add_polls(std::vector<pollfd>& polls) const;
  /// Answers waiting requests for a few milliseconds, so that a flood delays nothing else; true if there are
  /// more. Malformed requests are counted, answered and dropped.
  bool handle();
  void refuse_opens() { draining_ = true; }

 private:
  /// Answers one request; an exception is answered as kInternal, or as kNotEnoughMemory. `frame`: empty if
  /// the message has not exactly one. `uid`: the user that sent it, if libzmq knows it.
  void serve(const std::string& asker, std::string_view frame, std::optional<std::uint32_t> uid);
  /// Throws std::bad_alloc.
  void serve(const std::string& asker, std::int64_t id, const Result<wire::Request>& request,
             std::optional<std::uint32_t> uid);
  Result<nlohmann::json> answer(const std::string& op, const nlohmann::json& body,
                                std::optional<std::uint32_t> uid);
  void send(const std::string& identity, std::int64_t id, Answer answer);

  struct Socket;
  std::atomic<std::size_t> unread_{0};  ///< sample bytes that libzmq still has to send
  exec::Engine& engine_;
  Sessions& sessions_;
  std::function<nlohmann::json()> stats_;
  std::function<void()> drain_;
  std::unique_ptr<Socket> socket_;
  SampleDesk samples_;
  metrics::Count& bad_messages_;
  std::uint64_t instance_ = 0;
  bool draining_ = false;
};

}  // namespace headrace::server::session
