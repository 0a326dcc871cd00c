#include "server/metrics/http.h"

#include <CivetServer.h>
#include <fmt/format.h>

namespace headrace::server::metrics {
namespace {

class RouteHandler : public CivetHandler {
 public:
  RouteHandler(std::string path, HttpServer::Handler handler)
      : path_(std::move(path)), handler_(std::move(handler)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const char* asked = mg_get_request_info(connection)->local_uri;
    const HttpReply reply =
        asked && path_ == asked ? handler_() : HttpReply{404, "text/plain", "not found\n"};
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
              reply.status, mg_get_response_code_text(connection, reply.status), reply.type.c_str(),
              reply.body.size());
    mg_write(connection, reply.body.data(), reply.body.size());
    return true;
  }

 private:
  std::string path_;
  HttpServer::Handler handler_;
};

}  // namespace

struct HttpServer::Impl {
  std::vector<std::unique_ptr<RouteHandler>> handlers;
  std::unique_ptr<CivetServer> server;
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port,
                                                      std::vector<Route> routes) {
  auto http = std::unique_ptr<HttpServer>(new HttpServer());
  const std::vector<std::string> options = {"listening_ports",       fmt::format("{}:{}", address, port),
                                            "num_threads",           "4",
                                            "request_timeout_ms",    "5000",
                                            "keep_alive_timeout_ms", "500",
                                            "linger_timeout_ms",     "500"};
  try {
    http->impl_->server = std::make_unique<CivetServer>(options);
  } catch (const CivetException& error) {
    return fail(
        ErrorCode::kEnvironment,
        fmt::format(
            "metrics port {}:{} cannot be bound ({}): choose another server.metrics.port, 0 for any free "
            "one, or `metrics: off`",
            address, port, error.what()));
  }
  for (Route& route : routes) {
    http->impl_->handlers.push_back(std::make_unique<RouteHandler>(route.path, std::move(route.handler)));
    http->impl_->server->addHandler(route.path, *http->impl_->handlers.back());
  }
  const std::vector<int> ports = http->impl_->server->getListeningPorts();
  http->url_ = fmt::format("http://{}:{}", address, ports.empty() ? port : ports.front());
  return http;
}

}  // namespace headrace::server::metrics
