#include "server/store/tree_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "clientlib/base/stop_signals.h"
#include "clientlib/ring/unique_fd.h"
#include "server/store/lmdb_env.h"

namespace headrace::server::store {
namespace {

enum Outcome : int { kSound = 0, kDamaged = 1, kNotChecked = 2 };
constexpr std::uint64_t kLeastEntryBytes = 8;
constexpr int kTickMs = 20;
constexpr int kTries = 3;

/// Runs in the child.
Outcome walk(const std::filesystem::path& folder) {
  const auto env = Env::open_unchecked(folder, Env::Access::kSequential);
  if (!env) return kSound;  // the next process to open it gets the error
  const auto txn = Txn::begin(*env, false);
  if (!txn) return kSound;
  const std::uint64_t claimed = txn->entries();
  // Pages that refer to the same pages repeatedly would make the walk endless.
  if (claimed > env->file_bytes() / kLeastEntryBytes) return kDamaged;
  std::uint64_t entries = 0;
  const auto walked = txn->each(
      [&](Bytes key, Bytes value) { return env->holds(key) && env->holds(value) && ++entries <= claimed; });
  return walked && entries == claimed ? kSound : kDamaged;
}

[[noreturn]] void run_child(const std::filesystem::path& folder) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  for (const int signal : {SIGBUS, SIGSEGV, SIGABRT, SIGFPE, SIGTERM, SIGINT, SIGHUP})
    ::signal(signal, SIG_DFL);
  // Discard LMDB's message about a failed assertion.
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDERR_FILENO);
  try {
    ::_exit(walk(folder));
  } catch (...) {  // the stack below is the parent's
    ::_exit(kNotChecked);
  }
}

struct Ended {
  int status = 0;
  bool stopped = false;  ///< killed, because this process should stop
};

/// nullopt: SIGCHLD is ignored, so the kernel keeps no status. A server blocks stop_signals(): a pending one
/// requests a stop.
std::optional<Ended> wait_for(pid_t child) {
  const sigset_t stop = stop_signals();
  const ring::UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const ring::UniqueFd told(::signalfd(-1, &stop, SFD_CLOEXEC));
  pollfd events[] = {{end.get(), POLLIN, 0}, {told.get(), POLLIN, 0}};
  Ended ended;
  for (;;) {
    const pid_t done = ::waitpid(child, &ended.status, WNOHANG);
    if (done == child) return ended;
    if (done < 0 && errno != EINTR) return std::nullopt;
    ::poll(events, 2, kTickMs);  // the tick is for kernels without pidfd
    if (events[1].revents == 0) continue;
    ::kill(child, SIGKILL);
    ended.stopped = true;
    events[1].fd = -1;
  }
}

bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGFPE;
}

Result<void> check_once(const std::filesystem::path& folder) {
  const auto not_checked = [&folder](const std::string& why) {
    return fail(ErrorCode::kEnvironment,
                fmt::format("{}: cannot check data.mdb for damage: {}", folder.string(), why));
  };
  const pid_t child = ::fork();
  if (child < 0)
    return not_checked(
        fmt::format("no process: {}; raise the process limit (ulimit -u, pids.max)", std::strerror(errno)));
  if (child == 0) run_child(folder);
  const auto ended = wait_for(child);
  if (!ended)
    return not_checked(fmt::format("{}; do not start headrace with SIGCHLD ignored", std::strerror(errno)));
  const int status = ended->status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSound) return {};
  if (ended->stopped) return not_checked("headrace is being stopped");
  if (WIFSIGNALED(status) && !is_crash(WTERMSIG(status)))
    return not_checked(
        fmt::format("the check was killed by a signal ({}); run it again", ::strsignal(WTERMSIG(status))));
  if (WIFEXITED(status) && WEXITSTATUS(status) != kDamaged)
    return not_checked("the check ran out of memory; free some, then run it again");
  const std::string how =
      WIFSIGNALED(status) ? fmt::format(" (reading it crashed: {})", ::strsignal(WTERMSIG(status))) : "";
  return fail(ErrorCode::kDatasetInvalid,
              fmt::format("{}: data.mdb is damaged{}; copy or pack it again", folder.string(), how));
}

/// One of LMDB's two meta pages. Commits write them in turn, and no commit reuses a snapshot's pages before
/// the third after it: the walk can meet reused pages only if this page has changed.
std::string first_meta_page(const std::filesystem::path& folder) {
  std::string page(256, '\0');
  std::ifstream(folder / "data.mdb", std::ios::binary)
      .read(page.data(), static_cast<std::streamsize>(page.size()));
  return page;
}

}  // namespace

Result<void> check_tree(const std::filesystem::path& folder) {
  for (int i = 0; i < kTries; ++i) {
    const std::string before = first_meta_page(folder);
    auto checked = check_once(folder);
    if (checked || checked.error().code != ErrorCode::kDatasetInvalid || first_meta_page(folder) == before)
      return checked;
  }
  return {};  // it is written too fast to check
}

}  // namespace headrace::server::store
