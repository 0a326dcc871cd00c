"""Receives rows from makers over ZeroMQ. Through Ray's object store they would cost this node several times the CPU time, because another
process (the raylet) would receive and copy them first."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]
import zmq

from ..errors import from_code
from ._remote import LARGEST, keep_alive

_HANDSHAKE = 3_000  # ms within which a peer must give the password. Makers try again
_logger = logging.getLogger("headrace")


class Inbox:
    """Receives messages at `address` from peers that have `password`: a key, then the bytes of one array in each part (MakerActor.rows sends
    them). Raises Error, code ENVIRONMENT, if it cannot listen.

    on_rows   called by the inbox's thread with the key and the parts. The parts are not copied: an array over a part keeps the message in
              memory
    expected  keys; a message with another one is dropped. All makers have the password, so keys must be hard to guess. Any thread may
              change it
    """

    def __init__(self, on_rows: Callable[[bytes, Sequence[Any]], None]) -> None:
        self._on_rows = on_rows
        self.expected: set[bytes] = set()
        node = ray.util.get_node_ip_address()
        host = f"[{node}]" if ":" in node else node
        self._context = zmq.Context(io_threads=2)
        self._socket = self._context.socket(zmq.PULL)
        self._socket.ipv6 = host != node
        self._socket.linger = 0
        self._socket.rcvhwm = 2  # messages of each maker, besides those that on_rows() has been given
        keep_alive(self._socket)
        # ZeroMQ gives on_rows() a message when it is complete, so strangers must not be able to send any.
        self.password = secrets.token_hex(16).encode()
        self._socket.plain_server = True
        self._socket.handshake_ivl = _HANDSHAKE
        self._socket.maxmsgsize = LARGEST
        self._door = self._context.socket(zmq.REP)
        self._door.linger = 0
        self._door.bind("inproc://zeromq.zap.01")  # where ZeroMQ asks about peers: https://rfc.zeromq.org/spec/27
        try:
            self._socket.bind(f"tcp://{host}:*")
        except zmq.ZMQError as error:
            self._context.destroy()
            raise from_code("ENVIRONMENT", f"no port for makers: cannot listen at {node}, Ray's address of this node: {error}") from None
        self.address = self._socket.last_endpoint.decode()
        self._threads = [
            threading.Thread(target=self._run, args=(socket, step), name="headrace-inbox", daemon=True)
            for socket, step in ((self._socket, self._receive), (self._door, self._admit))
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, socket: Any, step: Callable[[], None]) -> None:
        try:
            with contextlib.suppress(zmq.ContextTerminated), socket:
                while True:
                    step()
        except Exception:
            _logger.exception("headrace.ray: the bridge can receive no more rows; its process ends, and Ray starts it again")
            os._exit(1)

    def _receive(self) -> None:
        key, *parts = self._socket.recv_multipart(copy=False)
        if key.bytes in self.expected:
            self._on_rows(key.bytes, [part.buffer for part in parts])

    def _admit(self) -> None:
        version, request, *_, password = self._door.recv_multipart()
        status = b"200" if secrets.compare_digest(password, self.password) else b"400"
        self._door.send_multipart([version, request, status, b"", b"", b""])

    def close(self) -> None:
        self._context.term()  # ends the threads, which close the sockets
        for thread in self._threads:
            thread.join()
