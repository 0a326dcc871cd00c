#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <locale>
#include <optional>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "clientlib/client/address.h"
#include "clientlib/client/exchange.h"
#include "clientlib/ring/layout.h"
#include "clientlib/ring/unique_fd.h"
#include "clientlib/wire/protocol.h"
#include "headrace/client.h"
#include "tests/temp_folder.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

class Connect : public testing::Test {
 protected:
  [[nodiscard]] std::string control() const { return directory_ + "/" + wire::kControlSocket; }
  [[nodiscard]] Error failure(std::chrono::milliseconds timeout = 150ms) const {
    auto client = Client::connect({.address = directory_, .timeout = timeout});
    EXPECT_FALSE(client);
    return client ? Error{} : client.error();
  }

  TempFolder folder_;
  const std::string directory_ = folder_.path().string();
};

/// Answers each request with `answer(request)`, in a thread, until destroyed.
class Peer {
 public:
  Peer(const std::string& path, std::function<std::string(const std::string&)> answer)
      : thread_([this, path, answer = std::move(answer)](const std::stop_token& stop) {
          zmq::context_t context(1);
          zmq::socket_t router(context, zmq::socket_type::router);
          router.set(zmq::sockopt::linger, 0);
          router.set(zmq::sockopt::rcvtimeo, 20);
          router.bind("ipc://" + path);
          while (!stop.stop_requested()) {
            zmq::message_t identity;
            zmq::message_t frame;
            if (!router.recv(identity) || !router.recv(frame)) continue;
            const std::string reply = answer(frame.to_string());
            if (reply.empty()) continue;
            router.send(identity, zmq::send_flags::sndmore);
            router.send(zmq::buffer(reply), zmq::send_flags::none);
          }
        }) {}

 private:
  std::jthread thread_;
};

/// A server that accepts connections and sends nothing. Its destructor leaves the socket file, as SIGKILL
/// does.
class Mute {
 public:
  explicit Mute(const std::string& path) : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ::unlink(path.c_str());
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    thread_ = std::jthread([this](const std::stop_token& stop) {
      std::vector<ring::UniqueFd> taken;
      while (!stop.stop_requested()) {
        pollfd entry{listener_.get(), POLLIN, 0};
        if (::poll(&entry, 1, 10) != 1) continue;
        taken.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        ++connections_;
      }
    });
  }
  [[nodiscard]] int connections() const { return connections_; }

 private:
  ring::UniqueFd listener_;
  std::atomic<int> connections_{0};
  std::jthread thread_;
};

TEST_F(Connect, WithoutAServerSaysThatNoSocketIsThere) {
  const Error error = failure();
  EXPECT_EQ(error.code, ErrorCode::kServerUnreachable);
  EXPECT_THAT(error.message, HasSubstr(control() + " does not exist"));
}

TEST_F(Connect, ToADeadServersSocketSaysThatNoServerListens) {
  const ring::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  control().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const Error error = failure();
  EXPECT_EQ(error.code, ErrorCode::kServerUnreachable);
  EXPECT_THAT(error.message, HasSubstr("no server listens"));
}

TEST_F(Connect, ToAServerThatSaysNothingNamesTheStep) {
  const Peer peer(control(), [](const std::string&) { return std::string(); });
  const Error error = failure(400ms);
  EXPECT_EQ(error.code, ErrorCode::kServerUnreachable);
  EXPECT_THAT(error.message, HasSubstr("did not answer 'hello'"));
}

TEST_F(Connect, WaitsForAServerThatComesLater) {
  std::optional<Peer> peer;
  std::jthread later([&] {
    std::this_thread::sleep_for(150ms);
    peer.emplace(control(), [](const std::string& frame) {
      const auto request = wire::decode_request(frame);
      return wire::encode(
          wire::Reply{request->id, wire::to_json(wire::HelloReply{"9.9.9", ring::kLayoutVersion, 77, 1})});
    });
  });
  const auto client = Client::connect({.address = directory_, .timeout = 5s});
  later.join();
  ASSERT_TRUE(client) << client.error().to_string();
  EXPECT_EQ(client->address(), directory_);
}

struct GroupedDigits : std::numpunct<char> {
  [[nodiscard]] char do_thousands_sep() const override { return ','; }
  [[nodiscard]] std::string do_grouping() const override { return "\1"; }
};

TEST_F(Connect, WorksUnderALocaleThatGroupsDigits) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new GroupedDigits));
  const Peer peer(control(), [](const std::string& frame) {
    const auto request = wire::decode_request(frame);
    return wire::encode(
        wire::Reply{request->id, wire::to_json(wire::HelloReply{"9.9.9", ring::kLayoutVersion, 77, 1})});
  });
  const auto client = Client::connect({.address = directory_, .timeout = 5s});
  std::locale::global(before);
  EXPECT_TRUE(client) << client.error().to_string();
}

TEST_F(Connect, ToAnotherRingLayoutNamesBothVersions) {
  const Peer peer(control(), [](const std::string& frame) {
    const auto request = wire::decode_request(frame);
    return wire::encode(wire::Reply{request->id, wire::to_json(wire::HelloReply{"9.9.9", 42, 77, 1})});
  });
  const Error error = failure(5s);
  EXPECT_EQ(error.code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(error.message, HasSubstr("layout 42"));
  EXPECT_THAT(error.message, HasSubstr(fmt::format("has {}:", ring::kLayoutVersion)));
}

TEST_F(Connect, ToAnotherProtocolNamesBothVersions) {
  const Peer peer(control(), [](const std::string&) { return std::string(R"({"v":8,"id":1,"ok":{}})"); });
  const Error error = failure(5s);
  EXPECT_EQ(error.code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(error.message, HasSubstr("version 8"));
  EXPECT_THAT(error.message, HasSubstr("version 1"));
}

TEST_F(Connect, ARequestThatWaitsDoesNotProbeItsServer) {
  const Mute server(control());
  const auto answer =
      client::exchange({directory_, {}}, "stats", nlohmann::json::object(), client::Deadline(600ms));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kServerUnreachable);
  EXPECT_THAT(answer.error().message, HasSubstr("did not answer 'stats'"));
  EXPECT_LE(server.connections(), 2) << "the request's own, and one at the deadline for the error";
}

TEST_F(Connect, ARequestEndsWithItsServer) {
  for (const bool restarted : {false, true}) {
    std::optional<Mute> server(control());
    std::jthread later([&] {
      std::this_thread::sleep_for(100ms);
      server.reset();
      if (restarted) server.emplace(control());
    });
    const client::Deadline deadline(20s);
    const auto answer = client::exchange({directory_, {}}, "stats", nlohmann::json::object(), deadline);
    later.join();
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::kServerLost) << answer.error().to_string();
    EXPECT_THAT(answer.error().message, HasSubstr("exited before it answered 'stats'"));
    EXPECT_LT(deadline.seconds_spent(), 2);
  }
}

TEST_F(Connect, ARequestEndsWithAServerThatStartedAfterIt) {
  std::optional<Mute> server;
  std::jthread later([&] {
    std::this_thread::sleep_for(100ms);
    server.emplace(control());
    for (int i = 0; i < 1000 && server->connections() == 0; ++i) std::this_thread::sleep_for(5ms);
    std::this_thread::sleep_for(200ms);
    server.reset();
  });
  const client::Deadline deadline(20s);
  const auto answer = client::exchange({directory_, {}}, "stats", nlohmann::json::object(), deadline);
  later.join();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kServerLost) << answer.error().to_string();
  EXPECT_LT(deadline.seconds_spent(), 5);
}

TEST_F(Connect, ARequestIsAnsweredByAServerThatComesLater) {
  std::optional<Peer> peer;
  std::jthread later([&] {
    std::this_thread::sleep_for(150ms);
    peer.emplace(control(), [](const std::string& frame) {
      return wire::encode(wire::Reply{wire::decode_request(frame)->id, nlohmann::json{{"pid", 1}}});
    });
  });
  const auto answer =
      client::exchange({directory_, {}}, "stats", nlohmann::json::object(), client::Deadline(20s));
  later.join();
  ASSERT_TRUE(answer) << answer.error().to_string();
}

TEST_F(Connect, ToSomethingElseIsABadMessage) {
  const Peer peer(control(), [](const std::string&) { return std::string("HTTP/1.1 400 Bad Request"); });
  EXPECT_EQ(failure(5s).code, ErrorCode::kBadMessage);
}

TEST_F(Connect, AReplyOfAnotherUserIsNotRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs two users: run this test as root";
  constexpr std::uint32_t kSomebody = 54321;
  ASSERT_EQ(::chmod(directory_.c_str(), 0777), 0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(kSomebody, kSomebody, kSomebody) != 0) ::_exit(1);
    const Peer peer(control(), [](const std::string&) { return std::string("{}"); });
    while (!std::filesystem::exists(control())) std::this_thread::sleep_for(1ms);
    (void)!::write(ready[1], "", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  // As if the socket had been replaced after all checks in the file system.
  ASSERT_EQ(::chmod(directory_.c_str(), 0700), 0);
  const client::Deadline deadline(5s);
  const auto refused = client::exchange({directory_, {}}, "hello", nlohmann::json::object(), deadline);
  const auto allowed =
      client::exchange({directory_, {kSomebody}}, "hello", nlohmann::json::object(), deadline);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message,
              HasSubstr("the server is not trusted: its reply came from user 54321"));
  ASSERT_FALSE(allowed);
  EXPECT_EQ(allowed.error().code, ErrorCode::kBadMessage) << "this reply was read";
}

TEST_F(Connect, AForkedChildIsRefused) {
  const Peer peer(control(), [](const std::string& frame) {
    const auto request = wire::decode_request(frame);
    if (request->op == "hello")
      return wire::encode(
          wire::Reply{request->id, wire::to_json(wire::HelloReply{"9.9.9", ring::kLayoutVersion, 77, 1})});
    return wire::encode(wire::Reply{request->id, nlohmann::json{{"pid", 1}}});
  });
  auto client = Client::connect({.address = directory_, .timeout = 5s});
  ASSERT_TRUE(client) << client.error().to_string();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto stats = client->stats();
    ::_exit(!stats && stats.error().code == ErrorCode::kForked ? 17 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 17);
  EXPECT_TRUE(client->stats());
}

std::string directory_of(std::string_view address) {
  return client::resolve_address(address)->directory;
}

TEST(Address, ComesFromTheEnvironmentWhenEmpty) {
  ::setenv("HEADRACE_ADDRESS", "ipc:///run/somewhere/", 1);
  EXPECT_EQ(directory_of(""), "/run/somewhere");
  ::unsetenv("HEADRACE_ADDRESS");
  ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(directory_of(""), "/run/user/7/headrace");
  ::setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(directory_of(""), "/tmp/headrace-" + std::to_string(::geteuid())) << "the server ignores it, too";
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(directory_of(""), "/tmp/headrace-" + std::to_string(::geteuid()));
}

TEST(Address, OnAnotherMachineOrTooLongIsRefused) {
  EXPECT_EQ(client::resolve_address("tcp://host:1").error().code, ErrorCode::kInvalidArgument);
  const auto longest = client::resolve_address("/" + std::string(120, 'x'));
  ASSERT_FALSE(longest);
  EXPECT_THAT(longest.error().message, HasSubstr("expected at most 107"));
}

}  // namespace
}  // namespace headrace
