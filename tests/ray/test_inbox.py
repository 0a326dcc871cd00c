"""The port at which a bridge receives rows, with senders of the test's own."""

from __future__ import annotations

import contextlib
import queue
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import ray
import zmq
from headrace.errors import Error
from headrace.ray import _inbox, _remote
from headrace.ray._inbox import Inbox

_LONGEST = 20  # seconds
_REFUSED = 500  # ms for which a peer tries that is not admitted


class Received:
    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[tuple[bytes, list[bytes]]] = queue.SimpleQueue()
        self.inbox = Inbox(lambda key, parts: self._messages.put((key, [bytes(part) for part in parts])))

    def next(self) -> tuple[bytes, list[bytes]]:
        return self._messages.get(timeout=_LONGEST)

    def empty(self) -> bool:
        return self._messages.empty()

    def send(self, *frames: bytes, password: bytes | None = None) -> None:
        """Sends a message: with the password, or tries it with another one; with none if that is empty."""
        with zmq.Context.instance().socket(zmq.PUSH) as sender:
            if password is not None:
                sender.linger = _REFUSED
            if password != b"":
                sender.plain_username, sender.plain_password = b"maker", password or self.inbox.password
            sender.connect(self.inbox.address)
            sender.send_multipart(frames)

    def opened(self, *sent: bytes) -> socket.socket:
        """A connection that has sent ZMTP's greeting for a password, and then this."""
        url: Any = urlsplit(self.inbox.address)
        peer = socket.create_connection((url.hostname, url.port))
        peer.sendall(b"".join([b"\xff", bytes(8), b"\x7f\x03\x01", b"PLAIN".ljust(20, b"\0"), bytes(32), *sent]))
        return peer


@pytest.fixture
def received() -> Iterator[Received]:
    made = Received()
    yield made
    made.inbox.close()


def test_rows_arrive_if_their_key_is_expected(received: Received) -> None:
    received.inbox.expected.add(b"right")
    for frames in ([b"wrong", b"rows"], [b""], [b"right"], [b"right and more", b"rows"], [b"right", b"field", b"", b"labels"]):
        received.send(*frames)
    assert sorted([received.next(), received.next()]) == [(b"right", []), (b"right", [b"field", b"", b"labels"])]
    received.inbox.expected.discard(b"right")
    received.inbox.expected.add(b"next")
    received.send(b"right", b"late")
    received.send(b"next", b"rows")
    assert received.next() == (b"next", [b"rows"])


def test_peers_that_speak_something_else_change_nothing(received: Received) -> None:
    url: Any = urlsplit(received.inbox.address)
    open_ones = [socket.create_connection((url.hostname, url.port)) for _ in range(20)]
    for i, each in enumerate(open_ones):
        each.sendall([b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\xff\0\0\0\0\0\0\0\x01\x7f", b"\0"][i % 4])
    received.inbox.expected.add(b"key")
    received.send(b"key", b"rows")
    assert received.next() == (b"key", [b"rows"])
    for each in open_ones:
        each.close()


def test_peers_without_the_password_send_nothing(received: Received) -> None:
    received.inbox.expected.add(b"key")
    for password in (b"", b"wrong", received.inbox.password + b"0"):
        received.send(b"key", b"wrong", password=password)
    received.send(b"key", b"rows")
    assert received.next() == (b"key", [b"rows"])
    time.sleep(2 * _REFUSED / 1000)
    assert received.empty()


def _wait_until_closed(peer: socket.socket, seconds: float) -> None:
    """Until the other side closes the connection, whatever it sends before."""
    peer.settimeout(seconds)
    with contextlib.suppress(ConnectionResetError):
        while peer.recv(1000):
            pass


def test_a_connection_without_the_password_ends_in_seconds(received: Received) -> None:
    at_once = _inbox._HANDSHAKE / 2000
    for size, part, seconds in ((_remote.LARGEST + 1, b"", at_once), (1 << 29, bytes(1 << 20), 10)):  # of the command with the password
        with received.opened(b"\x06", size.to_bytes(8, "big"), b"\x05HELLO", part) as peer:
            _wait_until_closed(peer, seconds)
    received.inbox.expected.add(b"key")
    received.send(b"key", b"rows")
    assert received.next() == (b"key", [b"rows"])


def test_closing_ends_the_threads_although_a_sender_is_connected() -> None:
    made = Received()
    with zmq.Context.instance().socket(zmq.PUSH) as sender:
        sender.linger = 0
        sender.plain_username, sender.plain_password = b"maker", made.inbox.password
        sender.connect(made.inbox.address)
        sender.send(b"key")
        made.inbox.close()
        assert not any(thread.is_alive() for thread in made.inbox._threads)


def test_an_address_of_another_machine_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "192.0.2.1")
    with pytest.raises(Error, match="cannot listen at 192.0.2.1, Ray's address of this node"):
        Inbox(lambda *_: None)
