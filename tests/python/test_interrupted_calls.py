"""System calls that a signal interrupts: the server repeats them, loses no request and does not end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import headrace
from conftest import ServerFactory

# Every other call of each thread fails before it begins, as if a signal had arrived.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static __thread unsigned calls;
/* A byte for each. */
static void count(void) {
  int fd = open(getenv("INTERRUPTED"), O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (fd < 0 || write(fd, "x", 1) != 1) abort();
  close(fd);
}
#define INTERRUPTED(type, name, parameters, arguments)             \
  type name parameters {                                           \
    static type(*real) parameters;                                 \
    if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
    if (++calls % 2) return count(), errno = EINTR, -1;            \
    return real arguments;                                         \
  }
INTERRUPTED(int, zmq_msg_recv, (void* message, void* socket, int flags), (message, socket, flags))
INTERRUPTED(int, epoll_wait, (int fd, struct epoll_event* events, int most, int timeout), (fd, events, most, timeout))
"""


def test_calls_that_signals_interrupt_lose_no_request(start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path) -> None:
    source, shim = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    server = start_server(quiet_config, env={"LD_PRELOAD": str(shim), "INTERRUPTED": str(tmp_path / "interrupted")})
    for _ in range(30):
        assert [stream.name for stream in headrace.streams(server.address)] == ["train"]
        with headrace.Loader(server.address, stream="train", timeout=20) as loader:
            assert sum(len(images) for images, _ in loader) == 60
    server.check_alive()
    assert (tmp_path / "interrupted").stat().st_size > 100, "calls of the server were interrupted"
