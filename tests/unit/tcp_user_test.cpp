// The user of a connection from this machine.
#include "server/metrics/tcp_user.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "clientlib/ring/unique_fd.h"

namespace headrace::server::metrics {
namespace {

/// A connection to a listening socket of this process.
class Connection {
 public:
  /// `of`: the family of the connecting socket; `to`: the listener's address.
  Connection(int of, const char* address, const char* to) {
    const bool four = std::strchr(to, ':') == nullptr;
    listener_ = ring::UniqueFd(::socket(four ? AF_INET : AF_INET6, SOCK_STREAM, 0));
    sockaddr_storage place{};
    const socklen_t size = fill(place, to, 0);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    port_ = port_of(listener_.get());
    peer_ = ring::UniqueFd(::socket(of, SOCK_STREAM, 0));
    const socklen_t length = fill(place, address, port_);
    EXPECT_EQ(::connect(peer_.get(), reinterpret_cast<sockaddr*>(&place), length), 0) << std::strerror(errno);
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::uint16_t peer_port() const { return port_of(peer_.get()); }
  void close() { peer_.reset(); }

 private:
  static socklen_t fill(sockaddr_storage& out, const char* address, std::uint16_t port) {
    out = {};
    auto& four = reinterpret_cast<sockaddr_in&>(out);
    if (::inet_pton(AF_INET, address, &four.sin_addr) == 1) {
      four.sin_family = AF_INET;
      four.sin_port = htons(port);
      return sizeof four;
    }
    auto& six = reinterpret_cast<sockaddr_in6&>(out);
    EXPECT_EQ(::inet_pton(AF_INET6, address, &six.sin6_addr), 1);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    return sizeof six;
  }
  static std::uint16_t port_of(int socket) {
    sockaddr_in6 name{};
    socklen_t size = sizeof name;
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size), 0);
    return ntohs(name.sin6_port);  // at the same place in sockaddr_in
  }

  ring::UniqueFd listener_, peer_;
  std::uint16_t port_ = 0;
};

TEST(TcpUser, IsTheOwnerOfTheConnectingSocket) {
  const Connection four(AF_INET, "127.0.0.1", "127.0.0.1");
  EXPECT_EQ(tcp_user("127.0.0.1", four.peer_port(), four.port()), ::getuid());
  const Connection mapped(AF_INET6, "::ffff:127.0.0.1", "127.0.0.1");
  EXPECT_EQ(tcp_user("127.0.0.1", mapped.peer_port(), mapped.port()), ::getuid());
  const Connection six(AF_INET6, "::1", "::1");
  EXPECT_EQ(tcp_user("::1", six.peer_port(), six.port()), ::getuid());
}

TEST(TcpUser, IsUnknownWithoutSuchASocket) {
  Connection one(AF_INET, "127.0.0.1", "127.0.0.1");
  const std::uint16_t port = one.peer_port();
  EXPECT_EQ(tcp_user("127.0.0.2", port, one.port()), std::nullopt);
  EXPECT_EQ(tcp_user("10.1.2.3", port, one.port()), std::nullopt);
  EXPECT_EQ(tcp_user("127.0.0.1", port, 1), std::nullopt);
  EXPECT_EQ(tcp_user("no address", port, one.port()), std::nullopt);
  one.close();  // the kernel keeps it, as root's
  EXPECT_EQ(tcp_user("127.0.0.1", port, one.port()), std::nullopt);
}

}  // namespace
}  // namespace headrace::server::metrics
