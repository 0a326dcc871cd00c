// The process-wide recv(2) and accept4(2) of the server leave the sockets of other libraries alone.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "clientlib/base/unique_fd.h"
#include "server/session/admission.h"
#include "tests/temp_folder.h"

namespace headrace::server::session {
namespace {

/// A listener with this name accepts a connection with accept4(), as libzmq does, and the peer sends "hello".
/// Returns what recv() gives the listener: the bytes, or the error's text.
std::string received(const std::string& name) {
  const TempFolder folder;
  const std::string path = (folder.path() / name).string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM, 0)), client(::socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_EQ(::bind(listener.get(), at, sizeof address), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::connect(client.get(), at, sizeof address), 0);
  const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, 0));
  EXPECT_EQ(::send(client.get(), "hello", 5, 0), 5);
  char bytes[16] = {};
  const auto got = ::recv(accepted.get(), bytes, sizeof bytes, 0);
  return got < 0 ? std::strerror(errno) : std::string(bytes, static_cast<std::size_t>(got));
}

TEST(Admission, ChecksTheHandshakeOfControlConnectionsOnly) {
  set_admitted({});
  EXPECT_EQ(received("control.sock"), "Connection reset by peer");
  EXPECT_EQ(received("others.sock"), "hello");
}

}  // namespace
}  // namespace headrace::server::session
