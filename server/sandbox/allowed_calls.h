// The system calls that `headrace serve` and its libraries make. Server.stop() in tests/python/running.py
// fails a test whose server logged a refused call.
#pragma once

#include <seccomp.h>

#include <array>

namespace headrace::server::sandbox {

/// Allowed with any arguments. Names that this machine's architecture lacks are skipped.
inline constexpr std::array kAllowed{
    // files; fcntl has a condition
    SCMP_SYS(access), SCMP_SYS(chmod), SCMP_SYS(close), SCMP_SYS(close_range), SCMP_SYS(copy_file_range),
    SCMP_SYS(dup), SCMP_SYS(dup2), SCMP_SYS(dup3), SCMP_SYS(faccessat), SCMP_SYS(faccessat2),
    SCMP_SYS(fadvise64), SCMP_SYS(fallocate), SCMP_SYS(fchmod), SCMP_SYS(fchmodat), SCMP_SYS(fdatasync),
    SCMP_SYS(flock), SCMP_SYS(fstat), SCMP_SYS(fstatfs), SCMP_SYS(fsync), SCMP_SYS(ftruncate),
    SCMP_SYS(getcwd), SCMP_SYS(getdents), SCMP_SYS(getdents64), SCMP_SYS(link), SCMP_SYS(linkat),
    SCMP_SYS(lseek), SCMP_SYS(lstat), SCMP_SYS(memfd_create), SCMP_SYS(mkdir), SCMP_SYS(mkdirat),
    SCMP_SYS(newfstatat), SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(pipe),
    SCMP_SYS(pipe2), SCMP_SYS(pread64), SCMP_SYS(preadv), SCMP_SYS(preadv2), SCMP_SYS(pwrite64),
    SCMP_SYS(pwritev), SCMP_SYS(pwritev2), SCMP_SYS(read), SCMP_SYS(readahead), SCMP_SYS(readlink),
    SCMP_SYS(readlinkat), SCMP_SYS(readv), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2),
    SCMP_SYS(rmdir), SCMP_SYS(sendfile), SCMP_SYS(stat), SCMP_SYS(statfs), SCMP_SYS(statx),
    SCMP_SYS(sync_file_range), SCMP_SYS(truncate), SCMP_SYS(umask), SCMP_SYS(unlink), SCMP_SYS(unlinkat),
    SCMP_SYS(utimensat), SCMP_SYS(write), SCMP_SYS(writev),
    // memory; mmap and mprotect have conditions
    SCMP_SYS(brk), SCMP_SYS(get_mempolicy), SCMP_SYS(madvise), SCMP_SYS(mbind), SCMP_SYS(membarrier),
    SCMP_SYS(mincore), SCMP_SYS(mlock), SCMP_SYS(mlock2), SCMP_SYS(move_pages), SCMP_SYS(mremap),
    SCMP_SYS(msync), SCMP_SYS(munlock), SCMP_SYS(munmap), SCMP_SYS(set_mempolicy),
    // threads, time, signals; clone and tgkill have conditions
    SCMP_SYS(arch_prctl), SCMP_SYS(clock_getres), SCMP_SYS(clock_gettime), SCMP_SYS(clock_nanosleep),
    SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(futex), SCMP_SYS(get_robust_list), SCMP_SYS(getcpu),
    SCMP_SYS(gettid), SCMP_SYS(gettimeofday), SCMP_SYS(nanosleep), SCMP_SYS(prctl), SCMP_SYS(restart_syscall),
    SCMP_SYS(rseq), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigpending), SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigtimedwait), SCMP_SYS(sched_get_priority_max),
    SCMP_SYS(sched_get_priority_min), SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_getparam),
    SCMP_SYS(sched_getscheduler), SCMP_SYS(sched_setaffinity), SCMP_SYS(sched_setparam),
    SCMP_SYS(sched_setscheduler), SCMP_SYS(sched_yield), SCMP_SYS(set_robust_list), SCMP_SYS(set_tid_address),
    SCMP_SYS(setpriority), SCMP_SYS(sigaltstack), SCMP_SYS(signalfd), SCMP_SYS(signalfd4), SCMP_SYS(time),
    SCMP_SYS(timerfd_create), SCMP_SYS(timerfd_gettime), SCMP_SYS(timerfd_settime), SCMP_SYS(times),
    // network; socket and socketpair have conditions
    SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(bind), SCMP_SYS(connect), SCMP_SYS(getpeername),
    SCMP_SYS(getsockname), SCMP_SYS(getsockopt), SCMP_SYS(listen), SCMP_SYS(recvfrom), SCMP_SYS(recvmmsg),
    SCMP_SYS(recvmsg), SCMP_SYS(sendmmsg), SCMP_SYS(sendmsg), SCMP_SYS(sendto), SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    // waiting
    SCMP_SYS(epoll_create), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2), SCMP_SYS(epoll_wait), SCMP_SYS(eventfd), SCMP_SYS(eventfd2), SCMP_SYS(poll),
    SCMP_SYS(ppoll), SCMP_SYS(pselect6), SCMP_SYS(select),
    // identity and limits; prlimit64 has a condition; pidfd_open for a client's process, process_vm_readv for
    // rows of a bridge
    SCMP_SYS(getegid), SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getgroups), SCMP_SYS(getpgrp),
    SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getrandom), SCMP_SYS(getrlimit), SCMP_SYS(getrusage),
    SCMP_SYS(getuid), SCMP_SYS(pidfd_open), SCMP_SYS(process_vm_readv), SCMP_SYS(setrlimit),
    SCMP_SYS(sysinfo), SCMP_SYS(uname)};

}  // namespace headrace::server::sandbox
