"""Hundreds of silent connections: attached clients are not disturbed, and new clients attach or get a named error."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest
from conftest import ServerFactory
from hostile_images import black_png
from running import Server, headrace_binary, http_get, wait_until
from zmtp import Dealer


def connect(path: str, kind: socket.SocketKind) -> socket.socket | None:
    silent = socket.socket(socket.AF_UNIX, kind)
    silent.setblocking(False)
    try:
        silent.connect(path)
    except OSError:  # its backlog is full for the moment
        silent.close()
        return None
    return silent


@contextlib.contextmanager
def silent_connections(server: Server, name: str, kind: socket.SocketKind, count: int) -> Iterator[None]:
    silent: list[socket.socket] = []

    def more() -> bool:
        silent.extend(s for s in (connect(f"{server.address}/{name}", kind) for _ in range(count - len(silent))) if s)
        return len(silent) >= count

    try:
        wait_until(more, f"{count} connections to {name}")
        yield
    finally:
        for each in silent:
            each.close()


def open_descriptors(server: Server) -> int:
    return len(list(Path(f"/proc/{server.popen.pid}/fd").iterdir()))


@pytest.mark.parametrize("name", ["control.sock", "attach.sock"])
def test_a_server_without_descriptors_refuses_new_clients_and_serves_the_old(
    start_server: ServerFactory, quiet_config: dict[str, Any], name: str
) -> None:
    server = start_server(quiet_config)
    resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE, (128, 128))
    with headrace.Loader(server.address, stream="train") as first:  # by then the server has opened all that it opens at the start
        assert sum(1 for _ in first) == len(first)
    wait_until(lambda: not headrace.stats(server.address)["streams"]["train"]["clients"], "the first client to go")
    idle = open_descriptors(server)
    with headrace.Loader(server.address, stream="train") as loader:
        assert sum(1 for _ in loader) == len(loader)
        control, attach = socket.SOCK_STREAM, socket.SOCK_SEQPACKET
        with silent_connections(server, name, control if name == "control.sock" else attach, 200):
            with silent_connections(server, "control.sock", control, 100):
                wait_until(lambda: "of 128 descriptors are reserved for data files and attached clients; raise RLIMIT_NOFILE" in server.output(), "the server to say that it has none left")
                loader.set_epoch(1)
                assert sum(1 for _ in loader) == len(loader), "every sample's file still finds a descriptor"
                server.check_alive()
                assert open_descriptors(server) <= 128 - 16
    wait_until(lambda: open_descriptors(server) <= idle, "the server to close what its clients left")
    with headrace.Loader(server.address, stream="train") as loader:
        assert sum(1 for _ in loader) == len(loader)


def test_a_client_of_a_server_without_descriptors_is_told_what_to_raise(start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    server = start_server(quiet_config)
    assert headrace.streams(server.address)
    used = {int(entry.name) for entry in Path(f"/proc/{server.popen.pid}/fd").iterdir()}
    limit = min(set(range(1024)) - used) + 8  # of which 16 or more are reserved
    resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE, (limit, limit))
    with pytest.raises(headrace.errors.ServerUnreachable) as refused:
        headrace.streams(server.address, timeout=1)
    assert "closed the connection before it answered 'hello'" in str(refused.value)
    assert "start it again with a higher limit of open files (ulimit -n)" in str(refused.value)
    assert "restart" not in str(refused.value)


@pytest.mark.parametrize(("limit", "warned"), [(96, True), (1024, False)])
def test_a_server_with_few_descriptors_says_how_many_clients_can_attach(
    start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path, limit: int, warned: bool
) -> None:
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -n {limit}\nexec {headrace_binary()} "$@"\n')
    limited.chmod(0o755)
    quiet_config["streams"]["train"]["ring"] = {"max_clients": 40}
    server = start_server(quiet_config, binary=str(limited))
    text = f"the streams allow 40 clients together (ring.max_clients), but the limit of {limit} open files leaves room for only about "
    assert (text in server.output()) == warned, server.output()
    assert headrace.streams(server.address)


def test_a_connection_waits_while_no_descriptor_is_left(start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    server = start_server(quiet_config)
    assert headrace.streams(server.address)
    limits = resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE, (8, limits[1]))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
        waiting.connect(f"{server.address}/control.sock")
        waiting.settimeout(0.5)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        server.check_alive()
        resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE, limits)
        waiting.settimeout(10)
        assert waiting.recv(1) == b"\xff", "the first byte of a greeting"
    assert headrace.streams(server.address)


def test_the_soft_limit_on_descriptors_is_raised_to_the_hard_one(
    start_server: ServerFactory, quiet_config: dict[str, Any]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1, 1024), hard))
    try:
        server = start_server(quiet_config)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    raised = resource.prlimit(server.popen.pid, resource.RLIMIT_NOFILE)
    assert raised == (min(hard, 1 << 20), hard)


def test_refused_packets_cannot_fill_the_log(start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    server = start_server(quiet_config)
    for _ in range(1000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(f"{server.address}/attach.sock")
            peer.send(b"x")
    with headrace.Loader(server.address, stream="train", timeout=5) as loader:
        next(iter(loader))
    refused = [line for line in server.output().splitlines() if " warning attach " in line]
    assert 1 <= len(refused) <= 5, refused  # one in 5 s
    assert re.search(rf"attach of user {os.getuid()} \(pid \d+\) refused: not an attach packet", refused[0]), refused


def test_silent_connections_to_the_attach_socket_keep_nobody_out(
    start_server: ServerFactory, quiet_config: dict[str, Any]
) -> None:
    server = start_server(quiet_config)
    enough = threading.Event()

    def flood() -> None:
        silent: list[socket.socket] = []
        while not enough.wait(0.001):
            silent += [s for s in (connect(f"{server.address}/attach.sock", socket.SOCK_SEQPACKET) for _ in range(16)) if s]
            if len(silent) > 600:
                for each in silent[:300]:
                    each.close()
                del silent[:300]
        for each in silent:
            each.close()

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        for _ in range(10):
            with headrace.Loader(server.address, stream="train", timeout=5) as loader:
                next(iter(loader))
    finally:
        enough.set()
        flooding.join()


def test_silent_connections_to_the_metrics_port_leave_health_checks_answered_and_the_data_alone(
    start_server: ServerFactory, basic_config: dict[str, Any]
) -> None:
    server = start_server(basic_config)
    port = int(server.metrics_url.rsplit(":", 1)[1])
    with contextlib.ExitStack() as silent, headrace.Loader(server.address, stream="train") as loader:
        for _ in range(60):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        begin = time.monotonic()
        assert http_get(server.metrics_url + "/healthz") == "ok\n"
        assert time.monotonic() - begin < 3, "60 silent connections are two rounds of 1 s"
        for _ in range(60):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert sum(1 for _ in loader) == len(loader)


def test_a_large_sample_that_is_shown_holds_up_no_other_request(
    start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path
) -> None:
    huge = tmp_path / "huge" / "class_0" / "0.png"
    huge.parent.mkdir(parents=True)
    huge.write_bytes(black_png(side=9_000, row_filter=4))  # Paeth, the slowest filter
    quiet_config["sources"]["images"]["path"] = str(tmp_path / "huge")
    server = start_server(quiet_config)
    shown: list[headrace.Sample] = []
    refused: list[Exception] = []

    def show() -> None:
        try:
            shown.append(headrace.sample(server.address, "train", 0, 0, timeout=60))
        except headrace.Error as error:
            refused.append(error)

    asking = [threading.Thread(target=show) for _ in range(6)]
    for each in asking:
        each.start()
    wait_until(lambda: len(refused) == 2, "the two that are too many to be told so")
    assert not shown, "the first sample is still being decoded"
    assert len(headrace.streams(server.address)) == 1
    assert not shown, "requested after the samples, answered before them"
    for each in asking:
        each.join()
    assert len(shown) == 4
    assert all("4 samples wait" in str(error) for error in refused)


WITHOUT_DESCRIPTORS = """
import os, resource, sys
import headrace
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for free in (0, 3, 12):  # libzmq would abort the process
    for _ in range(free):
        os.close(held.pop())
    try:
        headrace.Loader(sys.argv[1], stream="train", timeout=5)
    except headrace.errors.EnvironmentFailed as error:
        print(error.message)
for descriptor in held:
    os.close(descriptor)
print(headrace.Loader(sys.argv[1], stream="train").epoch)
"""


def test_a_client_without_descriptors_says_so_and_lives(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    done = subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS, address], capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[-1:] == ["0"], done.stderr
    assert len(lines) == 4
    assert all("no descriptors are left to talk to the server: Too many open files" in line for line in lines[:3])


def test_clients_that_open_and_never_attach_hold_nothing(start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["ring"] = {"max_clients": 1}
    server = start_server(quiet_config)
    ended = threading.Event()
    opened = []

    def flood() -> None:
        while not ended.is_set():
            dealer = Dealer(f"{server.address}/control.sock")
            for _ in range(100):
                place = {"stream": "train", "group": "default", "rank": 0, "world_size": 1, "client": "good", "pid": 1}
                opened.append("ok" in dealer.ask("open", **place, join="default", resume_server=False))
            dealer.close()

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        wait_until(lambda: len(opened) > 2000, "more tokens than the server remembers")
        for _ in range(10):  # one client at a time, always with the same name
            with headrace.Loader(server.address, stream="train", client="good", timeout=10) as loader:
                assert len(list(loader)) == len(loader)
    finally:
        ended.set()
        flooding.join()
    assert all(opened)
