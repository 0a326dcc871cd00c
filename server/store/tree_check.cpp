#include "server/store/tree_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "server/store/lmdb_env.h"

namespace headrace::server::store {
namespace {

constexpr int kDamaged = 1;

/// In the child: an exit status.
int walk(const std::filesystem::path& folder) {
  const auto env = Env::open_unchecked(folder, Env::Access::kSequential);
  if (!env) return 0;
  const auto txn = Txn::begin(*env, false);
  if (!txn) return 0;
  std::uint64_t entries = 0;
  const auto walked = txn->each([&](Bytes key, Bytes value) {
    return env->holds(key) && env->holds(value) && ++entries <= env->entries();
  });
  return walked && entries == env->entries() ? 0 : kDamaged;
}

[[noreturn]] void run_child(const std::filesystem::path& folder) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  for (const int signal : {SIGBUS, SIGSEGV, SIGABRT, SIGTERM, SIGINT}) ::signal(signal, SIG_DFL);
  // Discard LMDB's message about a failed assertion.
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDERR_FILENO);
  ::_exit(walk(folder));
}

}  // namespace

Result<void> check_tree(const std::filesystem::path& folder) {
  const pid_t child = ::fork();
  if (child < 0)
    return fail(
        ErrorCode::kEnvironment,
        fmt::format(
            "{}: cannot start a process to check data.mdb: {}; raise the process limit (ulimit -u, pids.max)",
            folder.string(), std::strerror(errno)));
  if (child == 0) run_child(folder);
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) continue;
  if (ended != child)  // SIGCHLD is ignored: the kernel keeps no status
    return fail(
        ErrorCode::kEnvironment,
        fmt::format("{}: cannot check data.mdb for damage: {}; do not start headrace with SIGCHLD ignored",
                    folder.string(), std::strerror(errno)));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const std::string how =
      WIFSIGNALED(status) ? fmt::format(" (reading it crashed: {})", ::strsignal(WTERMSIG(status))) : "";
  return fail(ErrorCode::kDatasetInvalid,
              fmt::format("{}: data.mdb is damaged{}; copy or pack it again", folder.string(), how));
}

}  // namespace headrace::server::store
