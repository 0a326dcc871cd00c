"""What the server tells a service manager, such as systemd: sd_notify(3)'s datagrams, received on a real socket."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import subprocess
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Server, headrace_binary, http_get, wait_until

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WATCHDOG = 1.0  # seconds


class Manager:
    """The manager's end of the protocol."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self.environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(int(WATCHDOG * 1e6))}

    def next(self, seconds: float) -> str:
        """The next message; empty if none comes within that time."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(4096).decode()
        except TimeoutError:
            return ""

    def until(self, begin: str) -> str:
        found: str = wait_until(lambda: (said := self.next(1)).startswith(begin) and said, begin)
        return found


@pytest.fixture(params=["a file", "an abstract name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify") if request.param == "a file" else f"@headrace-test-{os.getpid()}")
    yield manager
    manager.socket.close()


def traced(request: int, pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(request, pid, None, None) == 0, os.strerror(ctypes.get_errno())


def test_a_service_is_ready_alive_and_stopping(basic_config: dict[str, Any], tmp_path: Path, manager: Manager) -> None:
    server = Server(basic_config, tmp_path, env=manager.environment).wait_ready()
    assert manager.next(5) == f"READY=1\nSTATUS=serving in {server.address}"
    begun = time.monotonic()
    assert [manager.next(WATCHDOG) for _ in range(6)] == ["WATCHDOG=1"] * 6
    assert time.monotonic() - begun > WATCHDOG, "about four times per interval"
    assert server.stop() == 0
    assert manager.until("STOPPING=1") == "STOPPING=1\nSTATUS=draining"


def test_the_watchdog_is_the_main_loops_and_no_other_threads(basic_config: dict[str, Any], tmp_path: Path, manager: Manager) -> None:
    server = Server(basic_config, tmp_path, env=manager.environment).wait_ready()
    manager.until("WATCHDOG=1")
    try:
        traced(PTRACE_SEIZE, server.popen.pid)  # the main thread alone
        traced(PTRACE_INTERRUPT, server.popen.pid)
        os.waitpid(server.popen.pid, 0)
        while manager.next(0.1):
            pass
        assert http_get(f"{server.metrics_url}/metrics"), "the other threads run"
        assert manager.next(2 * WATCHDOG) == "", "so a manager restarts it"
    finally:
        traced(PTRACE_DETACH, server.popen.pid)
    assert manager.until("WATCHDOG=1")
    assert server.stop() == 0


def test_a_main_loop_that_hangs_is_not_healthy(basic_config: dict[str, Any], tmp_path: Path) -> None:
    server = Server(basic_config, tmp_path).wait_ready()
    assert http_get(f"{server.metrics_url}/healthz") == "ok\n"
    try:
        traced(PTRACE_SEIZE, server.popen.pid)  # the main thread alone
        traced(PTRACE_INTERRUPT, server.popen.pid)
        os.waitpid(server.popen.pid, 0)
        time.sleep(11)
        with pytest.raises(urllib.error.HTTPError) as refused:
            http_get(f"{server.metrics_url}/healthz")
        assert refused.value.code == 503 and re.fullmatch(rb"not healthy: the main loop has not run for 1\d s\n", refused.value.read())
    finally:
        traced(PTRACE_DETACH, server.popen.pid)
    wait_until(lambda: http_get(f"{server.metrics_url}/readyz"), "the main loop")
    assert server.stop() == 0


def test_a_manager_that_is_not_there_is_named_and_changes_nothing(basic_config: dict[str, Any], tmp_path: Path) -> None:
    server = Server(basic_config, tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "none")}).wait_ready()
    assert server.stop() == 0
    assert "cannot send READY=1 to the service manager: No such file or directory" in server.output()


def test_a_manager_with_a_full_queue_is_told_later(basic_config: dict[str, Any], tmp_path: Path, manager: Manager) -> None:
    with contextlib.ExitStack() as others:
        sent = 1
        while sent:  # a socket may fill its own buffer before the manager's queue
            other = others.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            other.setblocking(False)
            sent = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    other.sendto(b"STATUS=of another service", manager.socket.getsockname())
                    sent += 1
    server = Server(basic_config, tmp_path, env=manager.environment).wait_ready()
    slowest = 0.0
    for _ in range(5):
        begun = time.monotonic()
        subprocess.run([headrace_binary(), "health", "--address", server.address], check=True, capture_output=True)
        slowest = max(slowest, time.monotonic() - begun)
    assert slowest < 0.8, "the main loop does not wait for the manager"
    said = "STATUS=of"
    while said.startswith("STATUS=of"):
        said = manager.next(5)
    assert said == f"READY=1\nSTATUS=serving in {server.address}"
    assert manager.until("WATCHDOG=1")
    assert server.stop() == 0


def test_other_processes_watchdogs_and_addresses_are_ignored(basic_config: dict[str, Any], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(1.5)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
        server = Server(basic_config, tmp_path, env=environment).wait_ready()
        assert listener.recv(4096).startswith(b"READY=1")
        with pytest.raises(TimeoutError):
            listener.recv(4096)
        assert server.stop() == 0
    server = Server(basic_config, tmp_path, env={"NOTIFY_SOCKET": "vsock:2:1234"}).wait_ready()
    assert server.stop() == 0
    assert "NOTIFY_SOCKET=vsock:2:1234: expected an absolute path or an abstract name (@...)" in server.output()
