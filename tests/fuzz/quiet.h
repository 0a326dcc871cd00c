// For targets that run a server's code, which would log each refusal.
#pragma once

#include <spdlog/sinks/null_sink.h>

#include <memory>

#include "server/log/log.h"

namespace headrace::fuzz {

inline void log_nothing() {
  static const bool done = [] {
    server::log::set_level(server::log::Level::kOff);
    server::log::set_sink(std::make_shared<spdlog::sinks::null_sink_mt>());
    return true;
  }();
  (void)done;
}

}  // namespace headrace::fuzz
