#include "server/log/sink.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "tests/temp_folder.h"

namespace headrace::server::log {
namespace {

using ::testing::StartsWith;

constexpr std::size_t kPage = 4096;

spdlog::logger logger_to(int fd) {
  spdlog::logger logger("test", std::make_shared<Sink>(fd));
  logger.set_pattern("%l %v");
  return logger;
}

/// The lines that can be read now.
std::vector<std::string> lines_in(int fd) {
  std::string text(1 << 20, '\0');
  const ssize_t got = ::read(fd, text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// The read and the write end; the write end blocks, as a shell's does.
struct Ends {
  ring::UniqueFd reader, writer;
};

Ends make_pipe() {
  int ends[2] = {};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  EXPECT_GE(::fcntl(ends[1], F_SETPIPE_SZ, kPage), 0);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ring::UniqueFd(ends[0]), ring::UniqueFd(ends[1])};
}

Ends make_sockets() {
  int ends[2] = {};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ring::UniqueFd(ends[0]), ring::UniqueFd(ends[1])};
}

void expect_drops_and_says_so(const Ends& ends) {
  auto logger = logger_to(ends.writer.get());
  const std::uint64_t before = dropped_lines();
  for (int i = 0; i < 20'000; ++i) logger.info("line {} {}", i, std::string(100, 'x'));
  const std::uint64_t lost = dropped_lines() - before;
  ASSERT_GT(lost, 100U);
  std::size_t read = 0;
  for (auto some = lines_in(ends.reader.get()); !some.empty(); some = lines_in(ends.reader.get()))
    read += some.size();
  EXPECT_EQ(read, 20'000 - lost) << "each line is written or counted";
  logger.info("after");
  const auto lines = lines_in(ends.reader.get());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], StartsWith("warning " + std::to_string(lost) + " log lines were dropped"));
  EXPECT_EQ(lines[1], "info after");
}

TEST(LogSink, DropsAndCountsWhatAFullPipeCannotTake) {
  const Ends ends = make_pipe();
  const ring::UniqueFd shared(::dup(ends.writer.get()));
  expect_drops_and_says_so(ends);
  EXPECT_EQ(::fcntl(shared.get(), F_GETFL) & O_NONBLOCK, 0) << "a shared file description is unchanged";
  EXPECT_NE(::fcntl(ends.writer.get(), F_GETFL) & O_NONBLOCK, 0) << "nothing here waits for the reader";
}

TEST(LogSink, DropsAndCountsWhatAFullSocketCannotTake) {
  expect_drops_and_says_so(make_sockets());
}

TEST(LogSink, CountsLinesForAReaderThatClosed) {
  std::signal(SIGPIPE, SIG_IGN);
  Ends ends = make_pipe();
  auto logger = logger_to(ends.writer.get());
  ends.reader.reset();
  const std::uint64_t before = dropped_lines();
  logger.info("nobody reads this");
  EXPECT_EQ(dropped_lines(), before + 1);
}

TEST(LogSink, AppendsToAFileThatOthersWriteToo) {
  const TempFolder folder;
  const auto path = folder.put("log", "first\n");
  const ring::UniqueFd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  auto logger = logger_to(file.get());
  logger.warn("second");
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, "first\nwarning second\n");
}

TEST(LogSink, EscapesControlBytesAndIndentsFurtherLines) {
  EXPECT_EQ(escaped("a\x1B[31m\tb\r\x7F"), "a\\x1B[31m\\x09b\\x0D\\x7F");
  EXPECT_EQ(escaped("bad: x\n2026-01-01 error forged"), "bad: x\n    2026-01-01 error forged");
  EXPECT_EQ(escaped("größe 大小"), "größe 大小");
  EXPECT_EQ(escaped("\xC2\x9B"
                    "31m"),
            "\\x9B31m")
      << "a control of eight bits";
}

TEST(LogSink, CutsWhatAPipeWouldSplit) {
  const Ends ends = make_pipe();
  auto logger = logger_to(ends.writer.get());
  logger.info(std::string(10'000, 'x'));
  const auto lines = lines_in(ends.reader.get());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].size(), kPage - 1);
  EXPECT_TRUE(lines[0].ends_with("x ..."));
}

/// Another user's terminal, as for a service that sudo starts. It is not read.
struct Terminal {
  Terminal() {
    int master = -1, slave = -1;
    EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
    reader = ring::UniqueFd(master);
    writer = ring::UniqueFd(slave);
  }
  /// Runs `work` in a child as a user who does not own the terminal. Returns the child's wait status; the
  /// exit status is the result.
  template <class Work>
  [[nodiscard]] int status_of(Work work) const {
    const pid_t child = ::fork();
    if (child == 0) {
      constexpr uid_t kNobody = 65534;
      if (::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(2);
      ::alarm(20);
      ::_exit(work(writer.get()));
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }

  ring::UniqueFd reader, writer;
};

bool is_blocking(int fd) {
  return (::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
}

TEST(LogSink, DoesNotBlockOnAnotherUsersUnreadTerminal) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const Terminal terminal;
  const int status = terminal.status_of([](int fd) {
    {
      auto logger = logger_to(fd);
      for (int i = 0; i < 3000; ++i) logger.info("{}", std::string(100, 'x'));
    }
    return dropped_lines() > 100 && is_blocking(fd) ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
}

TEST(LogSink, RestoresAnotherUsersTerminalBeforeAnEndWithoutDestructors) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const Terminal terminal;
  const int status = terminal.status_of([](int fd) {
    Sink sink(fd);
    if (is_blocking(fd)) return 3;
    sink.restore_terminal();
    ::_exit(0);  // without the destructor
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(is_blocking(terminal.writer.get())) << "the shell that shares it reads end of file";
}

}  // namespace
}  // namespace headrace::server::log
