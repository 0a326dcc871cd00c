"""A ZeroMQ peer over a plain socket (ZMTP 3.0), which can send what no ZeroMQ library sends."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
_MORE, _LARGE, _COMMAND = 1, 2, 4


class Dealer:
    """Connects and shakes hands with a ROUTER. Raises ConnectionError if it refuses the connection."""

    def __init__(self, path: str | os.PathLike[str], timeout: float = 5, identity: bytes = b"") -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(os.fspath(path))
        self.heard = b""  # all bytes that came
        self.socket.sendall(_GREETING)
        self._read(64)
        ready = _READY + (b"\x08Identity" + struct.pack(">I", len(identity)) + identity if identity else b"")
        self.socket.sendall(bytes([_COMMAND, len(ready)]) + ready)
        self.receive()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
            self.heard += part
        return data

    def send(self, frame: bytes, more: bool = False) -> None:
        self.socket.sendall(encoded(frame, more))

    def receive(self) -> bytes:
        """One frame or command."""
        flags, size = self._read(2)
        if flags & _LARGE:
            (size,) = struct.unpack(">Q", bytes([size]) + self._read(7))
        return self._read(size)

    def ask(self, op: str, **body: Any) -> dict[str, Any]:
        self.send(json.dumps({"v": 1, "id": 1, "op": op, "body": body}).encode())
        answer: dict[str, Any] = json.loads(self.receive())
        return answer

    def close(self) -> None:
        self.socket.close()


def encoded(frame: bytes, more: bool) -> bytes:
    flags = _MORE if more else 0
    if len(frame) > 255:
        return bytes([flags | _LARGE]) + struct.pack(">Q", len(frame)) + frame
    return bytes([flags, len(frame)]) + frame
