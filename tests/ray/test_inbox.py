"""The port at which a bridge receives rows, with senders of the test's own."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import ray
import zmq
from headrace.errors import Error
from headrace.ray._inbox import Inbox

_LONGEST = 20  # seconds


class Received:
    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[tuple[bytes, list[bytes]]] = queue.SimpleQueue()
        self.inbox = Inbox(lambda key, parts: self._messages.put((key, [bytes(part) for part in parts])))

    def next(self) -> tuple[bytes, list[bytes]]:
        return self._messages.get(timeout=_LONGEST)

    def send(self, *frames: bytes) -> None:
        with zmq.Context.instance().socket(zmq.PUSH) as sender:
            sender.connect(self.inbox.address)
            sender.send_multipart(frames)


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


def test_closing_ends_the_thread_although_a_sender_is_connected() -> None:
    made = Received()
    with zmq.Context.instance().socket(zmq.PUSH) as sender:
        sender.linger = 0
        sender.connect(made.inbox.address)
        sender.send(b"key")
        made.inbox.close()
        assert not made.inbox._thread.is_alive()


def test_an_address_of_another_machine_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "192.0.2.1")
    with pytest.raises(Error, match="cannot listen at 192.0.2.1, Ray's address of this node"):
        Inbox(lambda *_: None)
