// Shows the server's state in one line below the log on a terminal.
#pragma once

#include <memory>
#include <thread>

#include "server/exec/engine.h"
#include "server/log/sink.h"

namespace headrace::server::verbs {

/// Updates the line every second on a thread of its own, unless the log is no terminal. Both arguments must
/// outlive it.
class LiveLine {
 public:
  LiveLine(const exec::Engine& engine, log::Sink& sink);
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

 private:
  log::Sink& sink_;
  std::jthread thread_;
};

}  // namespace headrace::server::verbs
