#include "clientlib/ring/fd_passing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace headrace::ring {
namespace {

using namespace std::chrono_literals;

class FdPassing : public ::testing::Test {
 protected:
  FdPassing() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    left_.reset(ends[0]);
    right_.reset(ends[1]);
  }
  UniqueFd left_, right_;
};

std::size_t open_descriptors() {
  std::size_t open = 0;
  for (int fd = 0; fd < 1024; ++fd) open += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return open;
}

TEST_F(FdPassing, DeliversBytesAndWorkingDescriptors) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  ASSERT_TRUE(send_packet(left_.get(), "hello", std::array{write_end.get(), read_end.get()}));
  auto packet = receive_packet(right_.get(), 1s);
  ASSERT_TRUE(packet.has_value()) << packet.error().to_string();
  EXPECT_EQ(packet->bytes, "hello");
  ASSERT_EQ(packet->fds.size(), 2U);
  ASSERT_EQ(::write(packet->fds[0].get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(::read(read_end.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
  for (const UniqueFd& fd : packet->fds) EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(FdPassing, KeepsPacketsApart) {
  ASSERT_TRUE(send_packet(left_.get(), "one", {}));
  ASSERT_TRUE(send_packet(left_.get(), "two", {}));
  EXPECT_EQ(receive_packet(right_.get(), 1s)->bytes, "one");
  EXPECT_EQ(receive_packet(right_.get(), 1s)->bytes, "two");
}

TEST_F(FdPassing, TimesOutIfNothingArrives) {
  const auto packet = receive_packet(right_.get(), 5ms);
  ASSERT_FALSE(packet.has_value());
  EXPECT_EQ(packet.error().code, ErrorCode::kTimeout);
}

TEST_F(FdPassing, ReportsAClosedPeerOnBothSidesWithoutASignal) {
  left_.reset();
  EXPECT_EQ(receive_packet(right_.get(), 1s).error().code, ErrorCode::kServerLost);
  EXPECT_EQ(send_packet(right_.get(), "x", {}).error().code, ErrorCode::kServerLost);
}

TEST_F(FdPassing, GivesWhatAPeerSentThatClosedWithPacketsUnread) {
  ASSERT_TRUE(send_packet(left_.get(), "one", {}));
  ASSERT_TRUE(send_packet(left_.get(), "two", {}));
  ASSERT_TRUE(send_packet(right_.get(), "never read", {}));
  left_.reset();
  for (const char* sent : {"one", "two"}) {
    const auto packet = receive_packet(right_.get(), 1s);
    ASSERT_TRUE(packet.has_value()) << packet.error().to_string();
    EXPECT_EQ(packet->bytes, sent);
  }
  EXPECT_EQ(receive_packet(right_.get(), 1s).error().code, ErrorCode::kServerLost);
}

TEST_F(FdPassing, RefusesAnOversizedPacketWhenSending) {
  EXPECT_EQ(send_packet(left_.get(), std::string(kMaxPacket + 1, 'x'), {}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(send_packet(left_.get(), "", {}).error().code, ErrorCode::kInvalidArgument);
  const std::vector<int> many(kMaxFds + 1, left_.get());
  EXPECT_EQ(send_packet(left_.get(), "x", many).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(FdPassing, RefusesATruncatedPacketAndTheNextOneIsWhole) {
  const std::string huge(kMaxPacket * 2, 'x');
  ASSERT_EQ(::send(left_.get(), huge.data(), huge.size(), 0), static_cast<ssize_t>(huge.size()));
  EXPECT_EQ(receive_packet(right_.get(), 1s).error().code, ErrorCode::kBadMessage);
  ASSERT_TRUE(send_packet(left_.get(), "fine", {}));
  EXPECT_EQ(receive_packet(right_.get(), 1s)->bytes, "fine");
}

TEST_F(FdPassing, LeaksNoDescriptorOfAPacketWithTooMany) {
  const std::size_t before = open_descriptors();
  const std::vector<int> many(kMaxFds + 4, left_.get());
  iovec part{.iov_base = const_cast<char*>("x"), .iov_len = 1};
  std::vector<std::byte> control(CMSG_SPACE(many.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(many.size() * sizeof(int));
  std::copy(many.begin(), many.end(), reinterpret_cast<int*>(CMSG_DATA(header)));
  ASSERT_EQ(::sendmsg(left_.get(), &message, 0), 1);
  EXPECT_EQ(receive_packet(right_.get(), 1s).error().code, ErrorCode::kBadMessage);
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace headrace::ring
