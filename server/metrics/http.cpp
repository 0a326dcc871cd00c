#include "server/metrics/http.h"

#include <CivetServer.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "clientlib/ring/unique_fd.h"
#include "server/metrics/slow_requests.h"
#include "server/metrics/tcp_user.h"

namespace headrace::server::metrics {
namespace {

/// civetweb assigns a thread to a connection before its first byte arrives: see slow_requests.h.
constexpr int kThreads = 32;
constexpr int kPatienceMs = 1000;
/// The page may run its inline script, and load images and figures from this server; browsers refuse all
/// else.
constexpr const char* kPolicy =
    "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'\r\n";
constexpr int kMostEndless = kThreads / 4;  ///< endless replies at a time

/// Whether the `Host` of a request, which may have a port, is an IP address or `localhost`.
bool is_address(std::string host) {
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  in6_addr address{};
  return host == "localhost" || ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

HttpRequest request_of(mg_connection* connection, HttpParameters parameters) {
  const mg_request_info& info = *mg_get_request_info(connection);
  return {.parameters = std::move(parameters), .user = [&info, connection]() -> std::optional<uid_t> {
            const char* const host = mg_get_header(connection, "Host");
            if (!host || !is_address(host)) return std::nullopt;
            return tcp_user(info.remote_addr, static_cast<std::uint16_t>(info.remote_port),
                            static_cast<std::uint16_t>(info.server_port));
          }};
}

const char* extra_header(int status) {
  switch (status) {
    case 405:
      return "Allow: GET, HEAD\r\n";
    case 503:
      return "Retry-After: 1\r\n";
    default:
      return "";
  }
}

void send_head(mg_connection* connection, const HttpReply& reply, const std::string& length) {
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n%s%sCache-Control: no-store\r\nX-Content-Type-Options: "
            "nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n%s\r\n",
            reply.status, mg_get_response_code_text(connection, reply.status), reply.type.c_str(),
            length.c_str(), extra_header(reply.status), kPolicy);
}

/// Counts the endless replies, and ends them when the server stops.
class Endless {
 public:
  struct One {
    explicit One(Endless& all) : of(all), too_many(all.count_.fetch_add(1) >= kMostEndless) {}
    ~One() { of.count_.fetch_sub(1); }
    One(const One&) = delete;
    One& operator=(const One&) = delete;
    Endless& of;
    const bool too_many;
  };

  void stop() {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    stopped_.notify_all();
  }
  /// Waits a second. False: the replies are to end.
  bool wait() {
    std::unique_lock lock(mutex_);
    return !stopped_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_; });
  }

 private:
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  ///< [mutex]
};

/// Calls slow_requests.h.
void note(void (*what)(const std::string&, int), const mg_connection* connection) noexcept try {
  const mg_request_info& info = *mg_get_request_info(connection);
  what(info.remote_addr, info.remote_port);
} catch (...) {  // no memory: the connection may be ended as a slow one
}

class RouteHandler : public CivetHandler {
 public:
  RouteHandler(HttpServer::Route route, Endless& endless) : route_(std::move(route)), endless_(endless) {}

  bool handleGet(CivetServer*, mg_connection* connection) override { return answer(connection, true); }
  bool handleHead(CivetServer*, mg_connection* connection) override { return answer(connection, false); }
  bool handlePost(CivetServer*, mg_connection* connection) override { return refuse(connection); }
  bool handlePut(CivetServer*, mg_connection* connection) override { return refuse(connection); }
  bool handleDelete(CivetServer*, mg_connection* connection) override { return refuse(connection); }
  bool handleOptions(CivetServer*, mg_connection* connection) override { return refuse(connection); }
  bool handlePatch(CivetServer*, mg_connection* connection) override { return refuse(connection); }

 private:
  [[nodiscard]] HttpReply reply_to(mg_connection* connection) const {
    const mg_request_info& info = *mg_get_request_info(connection);
    if (!info.local_uri || route_.path != info.local_uri)
      return {.status = 404, .body = "no such path: / is the status page, /metrics the metrics\n"};
    HttpParameters parameters;
    if (route_.parameters) {
      auto parsed = parse_query(info.query_string ? info.query_string : "", *route_.parameters);
      if (!parsed) return {.status = 400, .body = parsed.error().message + "\n"};
      parameters = std::move(*parsed);
    }
    return route_.handler(request_of(connection, std::move(parameters)));
  }

  bool answer(mg_connection* connection, bool with_body) {
    bool begun = false;
    try {
      const HttpReply reply = reply_to(connection);
      if (!reply.next) {
        send(connection, reply, with_body);
      } else if (with_body) {
        send_endless(connection, reply, begun);
      } else {
        send_head(connection, reply, "");
      }
    } catch (...) {  // the caller is C, which no exception may reach
      constexpr const char* kFailed =
          "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      if (!begun) mg_write(connection, kFailed, std::strlen(kFailed));
    }
    return true;
  }

  static bool refuse(mg_connection* connection) {
    try {
      send(connection,
           {.status = 405,
            .body = fmt::format("expected GET or HEAD, found {}\n",
                                mg_get_request_info(connection)->request_method)},
           true);
    } catch (...) {  // no memory: the connection is closed without a reply
    }
    return true;
  }

  static void send(mg_connection* connection, const HttpReply& reply, bool with_body) {
    send_head(connection, reply, fmt::format("Content-Length: {}\r\n", reply.body.size()));
    if (with_body) mg_write(connection, reply.body.data(), reply.body.size());
  }

  /// Sets `begun` once the reply's head has been sent.
  void send_endless(mg_connection* connection, const HttpReply& reply, bool& begun) {
    const Endless::One one(endless_);
    if (one.too_many)
      return send(connection,
                  {.status = 503,
                   .body = fmt::format(
                       "{} readers of live figures are connected, the most allowed: close one of them\n",
                       kMostEndless)},
                  true);
    note(forget_connection, connection);
    std::string part = reply.next();
    begun = true;
    send_head(connection, reply, "");
    while (mg_write(connection, part.data(), part.size()) > 0 && endless_.wait()) part = reply.next();
  }

  HttpServer::Route route_;
  Endless& endless_;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses numeric(const std::string& address, int port) {
  const addrinfo hints{.ai_flags = AI_NUMERICHOST, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

CivetCallbacks callbacks() {
  CivetCallbacks out;
  out.begin_request = [](mg_connection* connection) {
    note(note_request, connection);
    return 0;  // civetweb is to handle it
  };
  out.connection_close = [](const mg_connection* connection) { note(forget_connection, connection); };
  return out;
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
  Endless endless;
  std::vector<std::unique_ptr<RouteHandler>> handlers;
  std::unique_ptr<CivetServer> server;
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {}
HttpServer::~HttpServer() {
  if (!impl_->server) return;
  impl_->endless.stop();
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
  } catch (const std::exception&) {  // no further thread can be created, or no memory: it takes the 2 s
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
    const CivetCallbacks noting = callbacks();
    http->impl_->server = std::make_unique<CivetServer>(options, &noting);
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
    if (refused == EACCES)
      return fail(
          ErrorCode::kEnvironment,
          fmt::format("metrics port {} of {} cannot be bound: a server gives up the privilege that low "
                      "ports need, also as root: set server.metrics.port to 1024 or more",
                      port, address));
    return fail(ErrorCode::kEnvironment,
                fmt::format("metrics port {} of {} cannot be bound ({}): correct server.metrics.address and "
                            "server.metrics.port (0: any free one), or set server.metrics to off",
                            port, address, std::strerror(refused)));
  }
  for (Route& route : routes) {
    const std::string path = route.path;
    http->impl_->handlers.push_back(std::make_unique<RouteHandler>(std::move(route), http->impl_->endless));
    http->impl_->server->addHandler(path, *http->impl_->handlers.back());
  }
  const std::vector<int> ports = http->impl_->server->getListeningPorts();
  http->impl_->address = address;
  http->impl_->port = ports.empty() ? port : ports.front();
  http->url_ = fmt::format("http://{}:{}", address, http->impl_->port);
  return http;
}

}  // namespace headrace::server::metrics
