"""What an attacker who runs code in the server could still do. The code is a library that is loaded into it (LD_PRELOAD)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest
from running import Process, Server, headrace_binary, wait_until

# CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE: what root keeps.
KEPT = 1 << 1 | 1 << 2 | 1 << 19

# fork() is refused as well, but not logged.
LOGGED = ("execve", "ptrace", "socket", "mprotect", "mmap", "tgkill", "prlimit64", "kill", "mount", "setuid", "fcntl", "ioctl")

# Ways to let a socket send a signal to another process.
OWNER = ("owner", "owner_high", "owner_ex", "owner_signal", "owner_ioctl", "group_ioctl")

# Runs in libzmq's thread, which blocks all signals, when the file GO exists: the hardest case for a filter that uses a signal.
ATTACK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void attack(void) {
  char done[4096];
  snprintf(done, sizeof done, "%s.done", getenv("GO"));
  FILE* out = fopen(done, "w");
  if (!out) return;
#define TRY(name, call) do { errno = 0; long r = (long)(call); fprintf(out, "%s %ld %d\n", name, r, errno); } while (0)
  const int page = 4096;
  void* memory = mmap(0, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TRY("execve", execve("/nonexistent", (char*[]){"x", 0}, (char*[]){0}));
  pid_t child = fork();
  if (child == 0) _exit(0);
  fprintf(out, "fork %d %d\n", child, child < 0 ? errno : 0);
  TRY("ptrace", ptrace(PTRACE_CONT, getppid(), 0, 0));
  TRY("packet", socket(AF_PACKET, SOCK_RAW, 0));
  TRY("jit", mprotect(memory, page, PROT_READ | PROT_WRITE | PROT_EXEC));
  TRY("later", mprotect(memory, page, PROT_READ | PROT_EXEC));
  TRY("anonymous", (mmap(0, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) - 2);
  TRY("signal", syscall(SYS_tgkill, getppid(), getppid(), 0));
  TRY("limits", syscall(SYS_prlimit64, getppid(), 7, 0, 0));
  TRY("kill", syscall(SYS_kill, getppid(), 0));
  TRY("mount", syscall(SYS_mount, "none", "/mnt", "tmpfs", 0, 0));
  TRY("setuid", syscall(SYS_setuid, 12345));
  // With O_ASYNC, the owner of a socket gets a signal when data arrives.
  int pair[2];
  TRY("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  struct f_owner_ex owner = {F_OWNER_PID, getppid()};
  TRY("owner", fcntl(pair[0], F_SETOWN, getppid()));
  TRY("owner_high", syscall(SYS_fcntl, pair[0], 1L << 32 | F_SETOWN, getppid()));  // the kernel ignores the upper half
  TRY("owner_ex", fcntl(pair[0], F_SETOWN_EX, &owner));
  TRY("owner_signal", fcntl(pair[0], F_SETSIG, 9));
  TRY("owner_ioctl", ioctl(pair[0], FIOSETOWN, &owner.pid));
  TRY("group_ioctl", ioctl(pair[0], SIOCSPGRP, &owner.pid));
  TRY("unknown", syscall(1000));
  fclose(out);
  char whole[4096];
  snprintf(whole, sizeof whole, "%s.finished", getenv("GO"));
  close(open(whole, O_CREAT | O_WRONLY, 0600));
}

int epoll_wait(int epoll, struct epoll_event* events, int size, int timeout) {
  static int attacked;
  static int (*real)(int, struct epoll_event*, int, int);
  if (!real) real = (int (*)(int, struct epoll_event*, int, int))dlsym(RTLD_NEXT, "epoll_wait");
  char name[17] = "";
  prctl(PR_GET_NAME, name);
  if (!attacked && strncmp(name, "ZMQbg/IO", 8) == 0 && access(getenv("GO"), F_OK) == 0) {
    attacked = 1;
    attack();
  }
  return real(epoll, events, size, timeout);
}
"""


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attack")
    (folder / "attack.c").write_text(ATTACK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "attack.so"), str(folder / "attack.c"), "-ldl"], check=True)
    return folder / "attack.so"


Attacked = Callable[[str], tuple[dict[str, tuple[int, int]], str]]


@pytest.fixture
def attacked(attack: Path, quiet_config: dict[str, Any], tmp_path: Path) -> Iterator[Attacked]:
    """attacked(seccomp): what each call of the attack returned, with errno, and the server's log. The server must serve afterwards."""
    running: list[Server] = []

    def run(seccomp: str) -> tuple[dict[str, tuple[int, int]], str]:
        folder = tmp_path / f"seccomp-{seccomp}"
        folder.mkdir()
        go, finished = folder / "go", folder / "go.finished"
        config = {**quiet_config, "server": {**quiet_config["server"], "seccomp": seccomp}}
        server = Server(config, folder, {"LD_PRELOAD": str(attack), "GO": str(go)})
        running.append(server)
        server.wait_ready()
        with headrace.Loader(server.address, stream="train", timeout=10) as loader:
            assert len(list(loader)) == len(loader)
            go.touch()
            headrace.stats(server.address)
            wait_until(finished.exists, "the attack")
            assert len(list(loader)) == len(loader)
        results = {name: (int(got), int(error)) for name, got, error in map(str.split, (folder / "go.done").read_text().splitlines())}
        wait_until(lambda: all(f"call {call}," in server.output() for call in LOGGED) or seccomp == "off", "the log")
        return results, server.output()

    yield run
    for server in running:
        assert Process.stop(server) == 0, "without the check that nothing was refused"


def test_code_in_the_server_cannot_run_programs_trace_or_make_memory_executable(attacked: Attacked) -> None:
    results, log = attacked("auto")
    assert results.pop("unknown") == (-1, 38), "ENOSYS: a C library falls back to an older call"
    assert results.pop("pair") == (0, 0)
    calls = ("execve", "fork", "ptrace", "packet", "jit", "later", "anonymous", "signal", "limits", "kill", "mount", "setuid")
    assert results == dict.fromkeys(calls + OWNER, (-1, 1)), "EPERM"
    for call in LOGGED:
        assert len(re.findall(rf"seccomp: refused the system call {call}, which a server does not need", log)) == 1


def test_without_the_filter_it_can(attacked: Attacked) -> None:
    results, log = attacked("off")
    assert results["fork"][0] > 0 and results["jit"][0] == 0 and results["execve"] == (-1, 2) and "seccomp:" not in log
    assert {call: results[call] for call in OWNER} == dict.fromkeys(OWNER, (0, 0))


def test_a_server_has_no_privileges_that_it_does_not_need(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    server = Server(quiet_config, tmp_path)
    try:
        server.wait_ready()
        for status in Path(f"/proc/{server.popen.pid}/task").glob("*/status"):
            told = dict(line.split(":\t") for line in status.read_text().splitlines() if ":\t" in line)
            assert told["NoNewPrivs"] == "1" and told["Seccomp"] == "2", status.read_text()
            for kind in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
                kept = KEPT if os.geteuid() == 0 and kind in ("CapPrm", "CapEff") else 0
                assert int(told[kind], 16) & ~kept == 0, f"{kind}: {told[kind]}"
    finally:
        server.stop()


def test_the_program_is_hardened() -> None:
    """Full RELRO, a position-independent executable, no executable stack, stack protector and checked libc calls."""
    binary = Path(headrace_binary())
    library = binary.parent.parent / "libheadrace_server.so"  # in the wheel, it has the server's code
    files = [binary] if "HEADRACE_BINARY" in os.environ or not library.exists() else [binary, library]
    for file in files:
        read = subprocess.run(["readelf", "--wide", "-h", "-l", "-d", "--dyn-syms", str(file)], check=True, capture_output=True, text=True).stdout
        assert "Type:                              DYN" in read
        assert "GNU_RELRO" in read and re.search(r"FLAGS.*\bBIND_NOW\b|FLAGS_1.*\bNOW\b", read)
        assert re.search(r"GNU_STACK .* RW ", read)
    assert "__stack_chk_fail" in read and re.search(r"__(memcpy|memmove|read|snprintf|vsnprintf|longjmp)_chk", read)
