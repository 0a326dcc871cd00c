#include "server/metrics/http.h"

#include <CivetServer.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "clientlib/ring/unique_fd.h"

namespace headrace::server::metrics {
namespace {

/// civetweb assigns a thread to a connection before its first byte arrives. So another connection waits at
/// most (silent connections / threads) times the timeout.
constexpr int kThreads = 32;
constexpr int kPatienceMs = 1000;

class RouteHandler : public CivetHandler {
 public:
  RouteHandler(std::string path, HttpServer::Handler handler)
      : path_(std::move(path)), handler_(std::move(handler)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const char* asked = mg_get_request_info(connection)->local_uri;
    HttpReply reply{500, "text/plain", "internal error\n"};
    try {
      reply = asked && path_ == asked ? handler_() : HttpReply{404, "text/plain", "not found\n"};
    } catch (const std::exception&) {  // the caller is C, which no exception may reach: reply with 500
    }
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

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses numeric(const std::string& address, int port) {
  const addrinfo hints{.ai_flags = AI_NUMERICHOST, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

/// The system's error for the port, which civetweb does not report; 0: none.
int bind_error(const std::string& address, int port) {
  const Addresses found = numeric(address, port);
  if (!found) return EADDRNOTAVAIL;
  const ring::UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;  // as civetweb does: a port in TIME_WAIT is free
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0)
    return errno;
  return 0;
}

/// Connects and closes. Errors do not matter.
void connect_once(const std::string& address, int port) {
  const Addresses found = numeric(address, port);
  if (!found) return;
  const ring::UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket) (void)::connect(socket.get(), found->ai_addr, found->ai_addrlen);
}

}  // namespace

struct HttpServer::Impl {
  std::string address;
  int port = 0;
  std::vector<std::unique_ptr<RouteHandler>> handlers;
  std::unique_ptr<CivetServer> server;
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {}
HttpServer::~HttpServer() {
  if (!impl_->server) return;
  // civetweb checks its stop flag when its poll returns, up to 2 s later, unless a client connects.
  std::atomic<bool> stopped{false};
  std::thread waker;
  try {
    waker = std::thread([&] {
      while (!stopped) {
        connect_once(impl_->address, impl_->port);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  } catch (const std::system_error&) {  // no further thread can be created: it takes the 2 s
  }
  impl_->server.reset();
  stopped = true;
  if (waker.joinable()) waker.join();
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port,
                                                      std::vector<Route> routes) {
  auto http = std::unique_ptr<HttpServer>(new HttpServer());
  const std::vector<std::string> options = {"listening_ports",       fmt::format("{}:{}", address, port),
                                            "num_threads",           std::to_string(kThreads),
                                            "request_timeout_ms",    std::to_string(kPatienceMs),
                                            "keep_alive_timeout_ms", "500",
                                            "linger_timeout_ms",     "500"};
  try {
    http->impl_->server = std::make_unique<CivetServer>(options);
  } catch (const CivetException& error) {
    const int refused = bind_error(address, port);
    if (refused == EADDRINUSE)
      return fail(ErrorCode::kEnvironment,
                  fmt::format("metrics port {} of {} is in use, perhaps by another server: set another "
                              "server.metrics.port (0: any free one), or server.metrics to off",
                              port, address));
    if (refused == 0)
      return fail(ErrorCode::kEnvironment,
                  fmt::format("the metrics server cannot start ({}), although its port is free: raise the "
                              "limits of threads (ulimit -u, the cgroup's pids.max) and open files (ulimit "
                              "-n), or set server.metrics to off",
                              error.what()));
    return fail(ErrorCode::kEnvironment,
                fmt::format("metrics port {} of {} cannot be bound ({}): correct server.metrics.address and "
                            "server.metrics.port (0: any free one), or set server.metrics to off",
                            port, address, std::strerror(refused)));
  }
  for (Route& route : routes) {
    http->impl_->handlers.push_back(std::make_unique<RouteHandler>(route.path, std::move(route.handler)));
    http->impl_->server->addHandler(route.path, *http->impl_->handlers.back());
  }
  const std::vector<int> ports = http->impl_->server->getListeningPorts();
  http->impl_->address = address;
  http->impl_->port = ports.empty() ? port : ports.front();
  http->url_ = fmt::format("http://{}:{}", address, http->impl_->port);
  return http;
}

}  // namespace headrace::server::metrics
