// One HTTP port for /metrics, /healthz, /readyz and / (civetweb), on threads of its own, so that nothing here
// delays the data. A connection that sends no request, or reads too slowly, occupies a thread for one second;
// 32 are served at a time and the others wait: with 90 silent connections, a reply takes up to three seconds.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::metrics {

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  using Handler = std::function<HttpReply()>;
  struct Route {
    std::string path;
    Handler handler;  ///< called from civetweb's threads
  };
  /// Port 0: any free one. kEnvironment if the port is taken.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, int port,
                                                   std::vector<Route> routes);
  ~HttpServer();

  [[nodiscard]] const std::string& url() const { return url_; }  ///< "http://127.0.0.1:9464"

 private:
  struct Impl;
  HttpServer();
  std::unique_ptr<Impl> impl_;
  std::string url_;
};

}  // namespace headrace::server::metrics
