// The HTTP port (civetweb), on threads of its own, so that nothing here delays the data. 32 connections are
// served at a time. At most half of the threads wait for requests, a quarter for clients that send or read
// for longer than a second (slow_requests.h), and a quarter send endless replies. Methods are GET and HEAD;
// others are refused with status 405.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/metrics/http_query.h"

namespace headrace::server::metrics {

struct HttpRequest {
  HttpParameters parameters;  ///< empty for a route that ignores the query
  /// The user whose process sent the request, if it runs on this machine (tcp_user.h) and asked for an
  /// address or `localhost`: with another name in the URL, a browser may act for a page of that name,
  /// whatever its user wants.
  std::function<std::optional<uid_t>()> user;
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  /// Set: an endless reply, for which `body` is unused. Called about once a second; each result is sent at
  /// once, until the reader closes the connection.
  std::function<std::string()> next;
};

class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;
  struct Route {
    std::string path;
    Handler handler;  ///< called from civetweb's threads
    /// A query with others is refused with status 400. nullopt: the query is ignored.
    std::optional<std::vector<HttpParameter>> parameters{};
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
