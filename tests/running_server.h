// A server in this process, on its own thread, for tests of clients. Its default source is synthetic.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "server/config/config.h"
#include "server/session/server.h"

namespace headrace {

class RunningServer {
 public:
  /// `train` is the YAML (flow style) of its one stream, `train`, over the source `rows` of `count` samples
  /// of `bytes` bytes.
  RunningServer(const std::filesystem::path& directory, std::uint64_t count, std::size_t bytes,
                const std::string& train)
      : RunningServer(directory, "sources: { rows: { type: synthetic, count: " + std::to_string(count) +
                                     ", bytes: " + std::to_string(bytes) +
                                     " } }\n"
                                     "streams: { train: { source: rows, " +
                                     train + " } }\n") {}
  /// A server with the sources and streams of `config`.
  RunningServer(const std::filesystem::path& directory, const std::string& config) {
    const std::string text = "server: { directory: " + directory.string() +
                             ", threads: 1, metrics: off, drain_timeout: 100ms, log_level: error }\n" +
                             config;
    server_ = server::session::Server::start(server::config::parse(text, "test.yaml").value()).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  ~RunningServer() {
    server_->ask_to_stop();
    thread_.join();
  }

 private:
  std::unique_ptr<server::session::Server> server_;
  std::thread thread_;
};

}  // namespace headrace
