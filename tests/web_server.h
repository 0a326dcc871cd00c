// A real HTTP server on loopback, in this process, that simulates faults of servers and networks.
#pragma once

#include <CivetServer.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace headrace {

class WebServer : private CivetHandler {
 public:
  struct File {
    std::string content;
    std::string etag = "\"1\"";
    bool ranges = true;
    bool heeds_if_match = true;
    std::string content_range = {};  ///< sent instead of the true one
    bool sized = true;               ///< false: the end of the connection is the end of the file
    std::string headers = {};        ///< sent before all others, each with its \r\n
  };
  /// The fault for the next request.
  struct Fault {
    int status = 0;            ///< sent instead of the reply
    std::string raw = {};      ///< sent instead of the reply and its head, before the connection is closed
    std::string headers = {};  ///< each with its \r\n
    std::string body = {};
    std::optional<std::size_t> cut = {};  ///< the connection is closed after so many bytes of the body
    bool stall = false;                   ///< after `cut` bytes the reply pauses until resume()
  };
  struct Call {
    std::string path, query, range, if_match, authorization;
    int port = 0;  ///< the client's port, which identifies the connection
  };

  WebServer()
      : server_({"listening_ports", "127.0.0.1:0", "num_threads", "8", "enable_keep_alive", "yes",
                 "keep_alive_timeout_ms", "5000", "request_timeout_ms", "5000"}) {
    server_.addHandler("/", *this);
  }
  ~WebServer() override { resume(); }
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

  [[nodiscard]] std::string url(const std::string& path, const std::string& user = "") {
    return "http://" + user + "127.0.0.1:" + std::to_string(server_.getListeningPorts().at(0)) + path;
  }
  void put(const std::string& path, File file) {
    const std::scoped_lock lock(mutex_);
    files_[path] = std::move(file);
  }
  void fail_next(Fault fault, int times = 1) {
    const std::scoped_lock lock(mutex_);
    for (int i = 0; i < times; ++i) faults_.push_back(fault);
  }
  std::vector<Call> calls() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(calls_, {});
  }
  /// Waits until a request has stalled.
  void wait_for_stall() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stalled_; });
  }
  void resume() {
    const std::scoped_lock lock(mutex_);
    resumed_ = true;
    changed_.notify_all();
  }
  void begin_anew() {
    const std::scoped_lock lock(mutex_);
    calls_.clear();
    faults_.clear();
    files_.clear();
    resumed_ = stalled_ = false;
  }

 private:
  static std::string header(mg_connection* connection, const char* name) {
    const char* value = mg_get_header(connection, name);
    return value == nullptr ? "" : value;
  }

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const mg_request_info* info = mg_get_request_info(connection);
    const Call call{info->local_uri,
                    info->query_string == nullptr ? "" : info->query_string,
                    header(connection, "Range"),
                    header(connection, "If-Match"),
                    header(connection, "Authorization"),
                    info->remote_port};
    std::optional<Fault> fault;
    std::optional<File> file;
    {
      const std::scoped_lock lock(mutex_);
      calls_.push_back(call);
      if (!faults_.empty()) {
        fault = faults_.front();
        faults_.pop_front();
      }
      if (const auto found = files_.find(call.path); found != files_.end()) file = found->second;
    }
    if (fault && !fault->raw.empty()) {
      mg_disable_connection_keep_alive(connection);
      mg_write(connection, fault->raw.data(), fault->raw.size());
      return true;
    }
    if (fault && fault->status != 0)
      return answer(connection, fault->status, fault->headers, fault->body, {});
    if (!file) return answer(connection, 404, "", "not found", {});
    if (file->heeds_if_match && !call.if_match.empty() && call.if_match != file->etag)
      return answer(connection, 412, "", "", {});
    std::string headers = file->headers + (file->etag.empty() ? "" : "ETag: " + file->etag + "\r\n");
    std::size_t first = 0, last = 0;
    if (!file->ranges || std::sscanf(call.range.c_str(), "bytes=%zu-%zu", &first, &last) != 2)
      return answer(connection, 200, headers, file->content, fault, file->sized);
    const std::size_t size = file->content.size();
    const std::string total = std::to_string(size);
    if (first >= size)
      return answer(connection, 416, headers + "Content-Range: bytes */" + total + "\r\n", "", {});
    last = std::min(last, size - 1);
    const std::string range = file->content_range.empty() ? "bytes " + std::to_string(first) + "-" +
                                                                std::to_string(last) + "/" + total
                                                          : file->content_range;
    headers += "Content-Range: " + range + "\r\n";
    return answer(connection, 206, headers, file->content.substr(first, last - first + 1), fault);
  }

  bool answer(mg_connection* connection, int status, const std::string& headers, const std::string& body,
              const std::optional<Fault>& fault, bool sized = true) {
    const bool whole = !fault || !fault->cut;
    const bool keep = whole && sized;
    if (!keep) mg_disable_connection_keep_alive(connection);
    const std::string length = sized ? "Content-Length: " + std::to_string(body.size()) + "\r\n" : "";
    mg_printf(connection, "HTTP/1.1 %d X\r\n%s%sConnection: %s\r\n\r\n", status, headers.c_str(),
              length.c_str(), keep ? "keep-alive" : "close");
    mg_write(connection, body.data(), whole ? body.size() : std::min(*fault->cut, body.size()));
    if (fault && fault->stall) {
      std::unique_lock lock(mutex_);
      stalled_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return resumed_; });
    }
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, File> files_;
  std::deque<Fault> faults_;
  std::vector<Call> calls_;
  bool resumed_ = false, stalled_ = false;
  CivetServer server_;  // last: its threads end before what they use
};

}  // namespace headrace
