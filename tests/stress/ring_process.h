// A reader in a separate process: this program, executed again, receives its descriptors over a socket.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <sstream>
#include <string>

#include "tests/stress/ring_ledger.h"

namespace headrace::ring::testing {

inline constexpr std::string_view kReaderFlag = "--ring-reader";

/// The process's task: read `batches`; or, with hold > 0, hold that many leases, report it, and never release
/// them.
struct ReaderTask {
  std::uint64_t batches = 0;
  std::uint64_t max_leases = 2;
  std::uint64_t seed = 0;
  std::uint64_t hold = 0;
};

class ReaderProcess {
 public:
  ReaderProcess(RingWriter& ring, std::uint32_t lane, int doorbell, const ReaderTask& task) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    UniqueFd theirs(ends[1]);
    const std::string socket = std::to_string(theirs.get());
    const auto fds = descriptors_for(ring, lane, doorbell);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::fcntl(theirs.get(), F_SETFD, 0);
      ::execl("/proc/self/exe", "reader", kReaderFlag.data(), socket.c_str(), nullptr);
      ::_exit(127);
    }
    const std::string words = std::to_string(lane) + " " + std::to_string(task.batches) + " " +
                              std::to_string(task.max_leases) + " " + std::to_string(task.seed) + " " +
                              std::to_string(task.hold);
    const std::array descriptors{fds.data.get(), fds.control.get(), fds.lease.get(), fds.doorbell.get()};
    EXPECT_TRUE(send_packet(socket_.get(), words, descriptors).has_value());
  }
  ~ReaderProcess() {
    if (pid_ > 0) kill();
  }
  ReaderProcess(const ReaderProcess&) = delete;
  ReaderProcess& operator=(const ReaderProcess&) = delete;

  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] int exit_status() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// True once the process holds as many leases as its task says.
  [[nodiscard]] bool holds() { return held_ = held_ || receive_packet(socket_.get(), 0ms).has_value(); }

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
  bool held_ = false;
};

inline int reader_process(int socket) {
  auto packet = receive_packet(socket, 10s);
  if (!packet || packet->fds.size() != 4) return 2;
  std::istringstream words(packet->bytes);
  std::uint32_t lane = 0;
  ReaderTask task;
  words >> lane >> task.batches >> task.max_leases >> task.seed >> task.hold;
  auto& fds = packet->fds;
  auto ring = RingReader::open({.data = std::move(fds[0]),
                                .control = std::move(fds[1]),
                                .lease = std::move(fds[2]),
                                .doorbell = std::move(fds[3])},
                               lane);
  if (!ring) return 3;
  if (task.hold == 0) {
    const ReaderReport report =
        read_all(**ring, task.batches, task.max_leases, static_cast<std::uint32_t>(task.seed));
    return report.errors == 0 && report.batches == task.batches ? 0 : 1;
  }
  for (std::uint64_t i = 0; i < task.hold; ++i)
    if (!(*ring)->next(0, 60s, 0ns, nullptr)) return 4;
  if (!send_packet(socket, "holding", {})) return 5;
  for (;;) ::pause();
}

/// The main function of the tests, and of their reader processes.
inline int main_of_tests_and_readers(int argc, char** argv) {
  if (argc == 3 && argv[1] == kReaderFlag) return reader_process(std::stoi(argv[2]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace headrace::ring::testing
