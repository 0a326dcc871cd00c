#include "server/sandbox/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>

#include "server/log/log.h"
#include "server/sandbox/allowed_calls.h"

namespace headrace::server::sandbox {
namespace {

/// System calls have small numbers; the highest one of Linux 6.12 is 466.
constexpr std::size_t kMostCalls = 1024;
/// SYS_SECCOMP of the kernel's <asm-generic/siginfo.h>, which glibc 2.36 lacks.
constexpr int kRefusal = 1;
enum class Refusal : std::uint8_t { kNone, kNew, kLogged };
std::array<std::atomic<Refusal>, kMostCalls> refusals;
int newest_known = 0;  // written before the filter is in effect

/// The handler of SIGSYS, in the thread that made the call.
void refuse(int /*signal*/, siginfo_t* info, void* context) {
  if (info->si_code != kRefusal) return;  // sent by kill(2)
  const int call = info->si_syscall;
  auto expected = Refusal::kNone;
  if (call >= 0 && static_cast<std::size_t>(call) < kMostCalls)
    refusals[static_cast<std::size_t>(call)].compare_exchange_strong(expected, Refusal::kNew);
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
  const long result = call > newest_known ? -ENOSYS : -EPERM;
#if defined(__x86_64__)
  registers.gregs[REG_RAX] = result;
#elif defined(__aarch64__)
  registers.regs[0] = static_cast<unsigned long long>(result);
#else
#error "add the register in which this architecture returns the result of a system call"
#endif
}

/// Empty: libseccomp does not know it.
std::string name_of(int call) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      ::seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, call), &std::free);
  return name ? std::string(name.get()) : std::string();
}

int newest_known_call() {
  for (int call = kMostCalls - 1; call > 0; --call)
    if (!name_of(call).empty()) return call;
  return kMostCalls;
}

/// Adds rules to a filter; remembers the first failure.
class Rules {
 public:
  explicit Rules(scmp_filter_ctx filter) : filter_(filter) {}
  template <class... Conditions>
  void allow(int call, Conditions... conditions) {
    add(SCMP_ACT_ALLOW, call, conditions...);
  }
  template <class... Conditions>
  void add(std::uint32_t action, int call, Conditions... conditions) {
    constexpr unsigned kCount = sizeof...(conditions);
    const std::array<scmp_arg_cmp, kCount + 1> all{conditions..., scmp_arg_cmp{}};
    const int failed = ::seccomp_rule_add_array(filter_, action, call, kCount, all.data());
    if (failed != 0 && error_ == 0) error_ = failed;
  }
  [[nodiscard]] int error() const { return error_; }

 private:
  scmp_filter_ctx filter_;
  int error_ = 0;
};

scmp_arg_cmp masked(unsigned argument, std::uint64_t mask, std::uint64_t value) {
  return scmp_arg_cmp{argument, SCMP_CMP_MASKED_EQ, mask, value};
}
/// For an int: the kernel ignores the upper half of the register.
scmp_arg_cmp equal(unsigned argument, std::uint64_t value) {
  return masked(argument, 0xFFFF'FFFF, value);
}

void add_conditional_rules(Rules& rules) {
  // Memory that was written to does not become executable. Libraries map their files executable.
  rules.allow(SCMP_SYS(mprotect), masked(2, PROT_EXEC, 0));
  rules.allow(SCMP_SYS(mmap), masked(2, PROT_EXEC, 0));
  rules.allow(SCMP_SYS(mmap), masked(2, PROT_WRITE | PROT_EXEC, PROT_EXEC), masked(3, MAP_ANONYMOUS, 0));
  // Threads, but no processes. fork() and posix_spawn() block all signals meanwhile, so a signal would end
  // the server. A filter cannot read the flags of clone3, which are in memory; without it, glibc calls clone.
  rules.allow(SCMP_SYS(clone), masked(0, CLONE_THREAD, CLONE_THREAD));
  rules.add(SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), masked(0, CLONE_THREAD, 0));
  rules.add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
  rules.allow(SCMP_SYS(tgkill), equal(0, static_cast<std::uint32_t>(::getpid())));
  rules.allow(SCMP_SYS(prlimit64), equal(0, 0));
  for (const std::uint64_t family : {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK}) {  // netlink: getaddrinfo(3)
    rules.allow(SCMP_SYS(socket), equal(0, family));
    rules.allow(SCMP_SYS(socketpair), equal(0, family));
  }
  // glibc 2.42 asks terminals with TCGETS2 and TCSETS2; their header conflicts with <termios.h>.
  constexpr std::uint64_t kGetTerminal2 = 0x802C542A, kSetTerminal2 = 0x402C542B;
  for (const auto request : std::initializer_list<std::uint64_t>{
           FIONREAD, FIONBIO, FIOCLEX, TCGETS, TCSETS, TCSETSW, TCSETSF, TIOCGWINSZ, TIOCGPGRP, kGetTerminal2,
           kSetTerminal2, kSetTerminal2 + 1, kSetTerminal2 + 2})
    rules.allow(SCMP_SYS(ioctl), equal(1, request));
  // F_SETOWN, F_SETOWN_EX and F_SETSIG are missing: with O_ASYNC, they would send signals to other processes.
  // So would FIOSETOWN and SIOCSPGRP of ioctl.
  for (const std::uint64_t command :
       {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK,
        F_OFD_SETLK, F_OFD_SETLKW, F_GETPIPE_SZ, F_SETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS})
    rules.allow(SCMP_SYS(fcntl), equal(1, command));
}

}  // namespace

#ifndef __has_feature  // clang's
#define __has_feature(name) 0
#endif

bool can_filter() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
  return false;
#else
  return true;
#endif
}

Result<void> drop_privileges() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return fail(ErrorCode::kEnvironment,
                fmt::format("cannot set no_new_privs: {}; the server runs without this protection",
                            std::strerror(errno)));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0)
    return fail(
        ErrorCode::kEnvironment,
        fmt::format("cannot read its capabilities: {}; the server keeps all of them", std::strerror(errno)));
  constexpr std::uint32_t kKept =
      CAP_TO_MASK(CAP_DAC_OVERRIDE) | CAP_TO_MASK(CAP_DAC_READ_SEARCH) | CAP_TO_MASK(CAP_SYS_PTRACE);
  const std::uint32_t kept = ::geteuid() == 0 ? kKept : 0;
  sets[0] = {sets[0].effective & kept, sets[0].permitted & kept, 0};
  sets[1] = {};
  if (::syscall(SYS_capset, &header, sets.data()) != 0)
    return fail(
        ErrorCode::kEnvironment,
        fmt::format("cannot drop capabilities: {}; the server keeps all of them", std::strerror(errno)));
  return {};
}

Result<void> filter_calls() {
  const auto wrong = [](const char* what, int negative) {
    return fail(ErrorCode::kEnvironment,
                fmt::format("seccomp: {}: {}; set `server.seccomp: off` to run without this filter", what,
                            std::strerror(-negative)));
  };
  struct sigaction action {};
  action.sa_sigaction = &refuse;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (::sigaction(SIGSYS, &action, nullptr) != 0) return wrong("cannot handle SIGSYS", -errno);
  newest_known = newest_known_call();
  const std::unique_ptr<void, decltype(&::seccomp_release)> filter(::seccomp_init(SCMP_ACT_TRAP),
                                                                   &::seccomp_release);
  if (!filter) return wrong("cannot make a filter", -ENOMEM);
  // TSYNC: for all threads. NNP: it sets no_new_privs.
  for (const auto attribute : {SCMP_FLTATR_CTL_TSYNC, SCMP_FLTATR_CTL_NNP})
    if (const int failed = ::seccomp_attr_set(filter.get(), attribute, 1))
      return wrong("cannot set up the filter", failed);
  // A binary tree, which needs fewer comparisons for each call than a list.
  if (const int failed = ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2))
    return wrong("cannot set up the filter", failed);
  Rules rules(filter.get());
  for (const int call : kAllowed) rules.allow(call);
  add_conditional_rules(rules);
  if (rules.error() != 0) return wrong("cannot add a rule", rules.error());
  if (const int failed = ::seccomp_load(filter.get())) return wrong("the kernel refuses the filter", failed);
  return {};
}

void unblock_sigsys() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGSYS);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void log_refusals() {
  for (std::size_t call = 0; call < kMostCalls; ++call) {
    if (refusals[call].load(std::memory_order_relaxed) != Refusal::kNew) continue;
    refusals[call].store(Refusal::kLogged, std::memory_order_relaxed);
    const std::string name = name_of(static_cast<int>(call));
    log::warn(
        "seccomp: refused the system call {}, which a server does not need; after an update of the C "
        "library, "
        "or with LD_PRELOAD, a library may need it: report this, and set `server.seccomp: off`; otherwise a "
        "dataset or client may be attacking the server: stop it, and check what it reads and who attaches",
        name.empty() ? fmt::format("number {}", call) : name);
  }
}

}  // namespace headrace::server::sandbox
