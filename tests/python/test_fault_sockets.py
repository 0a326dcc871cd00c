"""What a server listens on, and connections by the thousand that say nothing, little or the same thing for ever."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import headrace
import pytest
from conftest import ServerFactory
from running import Server, http_get, wait_until
from test_endless_messages import resident, training
from test_fault_frames import undisturbed
from test_floods import open_descriptors

STRESS = bool(os.environ.get("HEADRACE_STRESS"))
HALF_OPEN = 10_000 if STRESS else 1_200
SECONDS = 20 if STRESS else 4

TCP_LISTEN = "0A"


def sockets(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if link := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor)):
                found.add(link[1])
    return found


def internet_addresses(pid: int) -> list[tuple[str, str, int]]:
    """(protocol, address, port) of the internet sockets of a process that accept connections or packets."""
    own, found = sockets(pid), []
    for protocol in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        for line in Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in own and (not protocol.startswith("tcp") or words[3] == TCP_LISTEN):
                address, port = words[1].split(":")
                packed = struct.pack(f"={len(address) // 8}I", *(int(address[at : at + 8], 16) for at in range(0, len(address), 8)))
                family = socket.AF_INET6 if len(packed) == 16 else socket.AF_INET
                found.append((protocol, socket.inet_ntop(family, packed), int(port, 16)))
    return found


def unix_listeners(pid: int) -> set[str]:
    """The paths; those of abstract sockets begin with @."""
    accepts = 0x10000  # __SO_ACCEPTCON
    lines = (line.split() for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:])
    return {words[7] if len(words) > 7 else "" for words in lines if words[6] in sockets(pid) and int(words[3], 16) & accepts}


def test_nothing_listens_on_the_network_but_the_metrics_port(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    server = start_server(basic_config)
    silent = start_server({**basic_config, "server": {"threads": 1, "metrics": "off"}})
    for each in (server, silent):
        with headrace.Loader(each.address, stream="train") as loader:
            assert sum(1 for _ in loader) == 8
            assert unix_listeners(each.popen.pid) == {f"{each.address}/{name}.sock" for name in ("control", "attach", "bridge")}
            addresses = internet_addresses(each.popen.pid)
            assert addresses == ([("tcp", "127.0.0.1", int(server.metrics_url.rsplit(":", 1)[1]))] if each is server else [])


@contextmanager
def half_open(server: Server, count: int) -> Iterator[int]:
    """`count` connections to the three sockets, which begin a handshake or a request at most. Yields how many there are at once."""
    port = int(server.metrics_url.rsplit(":", 1)[1])
    local = {"control.sock": socket.SOCK_STREAM, "attach.sock": socket.SOCK_SEQPACKET}
    with ExitStack() as open_:
        held = 0
        for number in range(count):
            name = ("control.sock", "attach.sock", "http")[number % 3]
            family = socket.AF_INET if name == "http" else socket.AF_UNIX
            peer = open_.enter_context(socket.socket(family, local.get(name, socket.SOCK_STREAM)))
            peer.settimeout(0.05)
            with contextlib.suppress(OSError):  # a full backlog, or it was closed at once
                peer.connect(("127.0.0.1", port) if name == "http" else f"{server.address}/{name}")
                peer.send([b"", b"\xff\0\0", b"GET /met"][number // 3 % 3])
                held += 1
        yield held


@pytest.mark.filterwarnings("ignore:.*batches behind:RuntimeWarning")
def test_thousands_of_half_open_connections_harm_no_client(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    server = start_server(basic_config)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    chunk = min(HALF_OPEN, 2_000, limits[1] - 500 if limits[1] != resource.RLIM_INFINITY else HALF_OPEN)
    try:
        with undisturbed(server):
            idle, memory, opened = open_descriptors(server), resident(server), 0
            for _ in range(-(-HALF_OPEN // chunk)):
                with half_open(server, chunk) as held:
                    opened += held
                    with headrace.Loader(server.address, stream="train", timeout=60) as loader:
                        assert sum(1 for _ in loader) == 8, "a client that attaches meanwhile"
            assert opened > HALF_OPEN // 2, "half of them were connected"
            wait_until(lambda: open_descriptors(server) <= idle + 8, "the server to close what they left", 60)
            assert resident(server) - memory < 64_000_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert http_get(server.metrics_url + "/healthz") == "ok\n"


class Scraper(threading.Thread):
    """Asks for /metrics until it is stopped. Slow: it reads a byte at a time."""

    def __init__(self, port: int, slow: bool) -> None:
        super().__init__()
        self.port, self.slow = port, slow
        self.stopping = threading.Event()
        self.asked = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as peer:
                if self.slow:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.asked += 1
                while peer.recv(1 if self.slow else 65536) and not self.stopping.is_set():
                    if self.slow:
                        self.stopping.wait(0.05)


def test_slow_and_frequent_scrapes_do_not_stop_the_data(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    server = start_server(basic_config)
    port = int(server.metrics_url.rsplit(":", 1)[1])
    scrapers = [Scraper(port, slow) for slow in (True, False) for _ in range(60 if slow else 6)]
    with training(server) as seen:
        wait_until(lambda: seen, "the trainer's first epoch")
        for scraper in scrapers:
            scraper.start()
        try:
            had, end = len(seen), time.monotonic() + SECONDS
            while time.monotonic() < end:
                before = len(seen)
                wait_until(lambda: len(seen) > before, "an epoch in spite of the scrapes")  # noqa: B023
            assert len(seen) >= had + 3
        finally:
            for scraper in scrapers:
                scraper.stopping.set()
            for scraper in scrapers:
                scraper.join()
    assert set(seen) == {8}, "whole epochs"
    assert sum(scraper.asked for scraper in scrapers if not scraper.slow) > 20, "there was a flood"
    wait_until(lambda: http_get(server.metrics_url + "/healthz") == "ok\n", "health")
    server.check_alive()
