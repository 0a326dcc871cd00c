"""Messages that never end, on the control socket: they cost the server almost nothing, and it closes the sender's connection."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest
from conftest import ServerFactory
from running import Server, http_get, wait_until
from zmtp import Dealer, encoded

ENDLESS = 1_500_000_000
FEW_MB = 8_000_000


def resident(server: Server, name: str = "VmRSS") -> int:
    """VmHWM: the peak so far."""
    for line in Path(f"/proc/{server.popen.pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def flood(server: Server, part: bytes, total: int = ENDLESS) -> int:
    """The number of bytes of one message that the server accepted before it closed the connection."""
    dealer = Dealer(f"{server.address}/control.sock")
    chunk = encoded(part, more=True) * max(1, 65536 // (len(part) + 9))
    sent = 0
    try:
        while sent < total:
            sent += dealer.socket.send(chunk)
    except OSError:  # reset, or broken
        return sent
    finally:
        dealer.close()
    return sent


@contextlib.contextmanager
def connected(server: Server, connections: int) -> Iterator[tuple[list[Dealer], Callable[[], int]]]:
    """Yields `connections` control connections, and a function that returns the growth of the server's memory since then, in bytes."""
    dealers = [Dealer(f"{server.address}/control.sock") for _ in range(connections)]
    for dealer in dealers:
        dealer.ask("stats")  # libzmq allocates most of what a connection needs after its handshake
    before = resident(server)
    try:
        yield dealers, lambda: resident(server) - before
    finally:
        for dealer in dealers:
            dealer.close()


def ended(dealers: list[Dealer]) -> list[Dealer]:
    """The dealers whose connection the server has closed."""
    poller = select.poll()
    for dealer in dealers:
        poller.register(dealer.socket, 0)  # hang-ups are always reported
    gone = {fd for fd, _ in poller.poll(0)}
    return [dealer for dealer in dealers if dealer.socket.fileno() in gone]


@contextlib.contextmanager
def training(server: Server) -> Iterator[list[int]]:
    """The number of each epoch's batches that another client has received so far."""
    stop = threading.Event()
    seen: list[int] = []

    def train() -> None:
        with headrace.Loader(server.address, stream="train") as loader:
            while not stop.is_set():
                seen.append(sum(1 for _ in loader))

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        yield seen
    finally:
        stop.set()
        trainer.join()


@pytest.mark.parametrize("part", [b"x" * 60_000, b"x" * 200, b""], ids=["large", "small", "empty"])
def test_an_endless_message_closes_its_connection(
    start_server: ServerFactory, basic_config: dict[str, Any], part: bytes
) -> None:
    basic_config["server"]["metrics"] = {"port": 0}
    server = start_server(basic_config)
    with training(server) as seen:
        wait_until(lambda: len(seen) >= 2, "another client's epochs")
        before = resident(server, "VmHWM")
        taken = flood(server, part)
        grown = resident(server, "VmHWM") - before
        had = len(seen)
        wait_until(lambda: len(seen) >= had + 2, "another client to go on")
    # Unread bytes stay in the socket, not in the server. An empty part of 2 bytes costs libzmq 64 bytes.
    most = FEW_MB + (32 * 256 * 1024 if not part else 0)
    assert taken < 4_000_000, f"{taken} bytes of one message were taken"
    assert grown < most, f"the server grew by {grown} bytes"
    assert set(seen) == {8}, "another client's epochs have all their batches"
    assert 'headrace_connections_refused_total{reason="flood"} 1' in http_get(server.metrics_url + "/metrics")
    assert "unprocessed bytes" in server.output()
    assert headrace.stats(server.address)["streams"]


@pytest.mark.parametrize(("connections", "parts", "stopped"), [(100, 4, False), (400, 1, False), (400, 1, True)])
def test_endless_messages_of_all_connections_share_one_limit(
    start_server: ServerFactory, quiet_config: dict[str, Any], connections: int, parts: int, stopped: bool
) -> None:
    """Each sends less than its own limit. A stopped server finds all messages at once when it continues."""
    server = start_server(quiet_config)
    part = encoded(b"x" * 60_000, more=True)
    with connected(server, connections) as (dealers, grown):
        if stopped:
            server.popen.send_signal(signal.SIGSTOP)
        for dealer in dealers:
            with contextlib.suppress(OSError):
                for _ in range(parts):
                    dealer.socket.sendall(part)
        server.popen.send_signal(signal.SIGCONT)
        wait_until(lambda: len(ended(dealers)) > connections - 80, "the server to end those for which no room is left")
        sent = connections * parts * len(part)
        assert (held := grown()) < 2 * FEW_MB, f"the server grew by {held} bytes of {sent}"


def test_what_ended_connections_sent_ahead_no_longer_counts(start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    server = start_server(quiet_config)
    with connected(server, 69) as (dealers, _):
        for dealer in dealers:  # 4.1 MB of the 4 MiB, then a frame that is longer than any may be
            dealer.socket.sendall(encoded(b"x" * 60_000, more=True) + b"\x02\x7f" + bytes(7))
        wait_until(lambda: len(ended(dealers)) == 69, "libzmq to end them all")
        late = Dealer(f"{server.address}/control.sock")
        for _ in range(2):  # the second answer comes after the server has seen that nothing waits
            late.ask("streams")
        late.socket.sendall(2 * encoded(b"x" * 60_000, more=False))
        assert b"BAD_MESSAGE" in late.receive() and b"BAD_MESSAGE" in late.receive(), "large requests are answered"
        late.close()


def test_complete_messages_of_closed_connections_still_count(start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    """libzmq queues them for the server, which answers one after another."""
    server = start_server(quiet_config)
    request = encoded(b'{"v": 1, "id": 1, "op": "stats", "body": {}, "pad": "' + b"x" * 900 + b'"}', more=False)
    with connected(server, 1) as (_, grown):
        most = 0
        for _ in range(400):
            with contextlib.suppress(OSError):
                dealer = Dealer(f"{server.address}/control.sock")
                dealer.socket.sendall(request * 250)
                dealer.close()
            most = max(most, grown())
        assert most < 2 * FEW_MB, f"the server grew by {most} bytes"

    def large_requests_are_answered() -> bool:
        late = Dealer(f"{server.address}/control.sock")
        try:
            late.socket.sendall(2 * encoded(b"x" * 60_000, more=False))
            return b"BAD_MESSAGE" in late.receive() and b"BAD_MESSAGE" in late.receive()
        except OSError:
            return False
        finally:
            late.close()

    wait_until(large_requests_are_answered, "the server to have received all, so that nothing counts any more")


@pytest.mark.parametrize(("connections", "parts"), [(1, 5000), (100, 100)])
def test_small_parts_cost_no_more_memory_than_their_size(
    start_server: ServerFactory, quiet_config: dict[str, Any], connections: int, parts: int
) -> None:
    """libzmq may keep a whole 8 KiB buffer for each part."""
    server = start_server(quiet_config)
    part = encoded(b"x" * 34, more=True)
    with connected(server, connections) as (dealers, grown):
        for _ in range(parts):
            for dealer in dealers:
                dealer.socket.sendall(part)
            time.sleep(0.0002)
        headrace.stats(server.address)
        assert (held := grown()) < FEW_MB, f"the server grew by {held} bytes of {connections * parts * len(part)}"


def test_samples_that_nobody_reads_are_bounded_together(
    start_server: ServerFactory, image_folder: Path, basic_config: dict[str, Any]
) -> None:
    large = {"batch_size": 1, "ring": {"prefetch": 1, "max_clients": 1, "max_leases": 1}, "transforms": [{"resize": {"size": [600, 600]}}]}
    source = {"type": "image_folder", "path": str(image_folder)}
    server = start_server({**basic_config, "sources": {"images": source}, "streams": {"train": {"source": "images", **large}}})
    question = json.dumps({"v": 1, "id": 1, "op": "sample", "body": {"stream": "train", "epoch": 0, "index": 0, "picture": ""}}).encode()
    with connected(server, 3) as (dealers, grown):
        for _ in range(60):
            for dealer in dealers:
                dealer.send(question)
                time.sleep(0.012)
        assert (held := grown()) < 110_000_000, f"the server grew by {held} bytes"
    wait_until(lambda: "ok" in Dealer(f"{server.address}/control.sock").ask("sample", stream="train", epoch=0, index=0, picture=""), "samples again")


@pytest.mark.parametrize("identity", [b"me", b"\0\0\0\x10\0"])
def test_a_peer_that_sets_an_identity_is_refused(start_server: ServerFactory, basic_config: dict[str, Any], identity: bytes) -> None:
    """libzmq aborts if it generates an identity (a zero byte and a number) that a peer has already chosen."""
    basic_config["server"]["metrics"] = {"port": 0}
    server = start_server(basic_config)
    with pytest.raises(ConnectionError):
        dealer = Dealer(f"{server.address}/control.sock", identity=identity)
        dealer.ask("streams")
    assert 'headrace_connections_refused_total{reason="identity"} 1' in http_get(server.metrics_url + "/metrics")
    assert "expected a ZMTP 3 handshake without an identity" in server.output()
    assert headrace.stats(server.address)["streams"]


def test_requests_by_the_thousand_on_one_connection_are_all_answered(
    start_server: ServerFactory, quiet_config: dict[str, Any]
) -> None:
    server = start_server(quiet_config)
    dealer = Dealer(f"{server.address}/control.sock")
    for _ in range(3000):  # 600 KB in all: what was answered no longer counts
        assert "ok" in dealer.ask("hello", client="x" * 100, layout=2)
    request = encoded(b'{"v": 1, "id": 1, "op": "streams", "body": {}, "pad": "' + b"x" * 300 + b'"}', more=False)
    for _ in range(50):
        dealer.socket.sendall(request * 20)
        for _ in range(20):
            dealer.receive()
    dealer.close()
