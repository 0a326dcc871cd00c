// For the files of this folder: where lines go.
#pragma once

namespace spdlog {
class logger;
}

namespace headrace::server::log {

/// The logger that set_sink() made, or spdlog's default one before that.
spdlog::logger& logger();

}  // namespace headrace::server::log
