"""A proxy between clients and a server: it has a directory of its own with both sockets, and can cut, delay and reset connections."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType


class Proxy:
    """Forwards both sockets of the server at `server`. Clients use `address`."""

    def __init__(self, server: str, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.address, self.server = str(folder), server
        self.delay = 0.0  # seconds, before each answer of the server
        self.cut_after: int | None = None  # bytes of the next control answer that still pass
        self.connections = 0
        self.ended = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        for name, kind in (("control.sock", socket.SOCK_STREAM), ("attach.sock", socket.SOCK_SEQPACKET)):
            listener = socket.socket(socket.AF_UNIX, kind)
            listener.bind(f"{folder}/{name}")
            listener.listen(64)
            self._start(self._accept, listener, name, kind)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _accept(self, listener: socket.socket, name: str, kind: int) -> None:
        listener.settimeout(0.1)
        while not self.ended:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            client.settimeout(None)
            server = socket.socket(socket.AF_UNIX, kind)
            try:
                server.connect(f"{self.server}/{name}")
            except OSError:
                client.close()
                continue
            with self._lock:
                self.connections += 1
                self._pairs.append((client, server))
            self._start(self._forward, client, server, False)
            self._start(self._forward, server, client, name == "control.sock")
        listener.close()

    def _forward(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(source, 1 << 20, 16)
                if not data and not descriptors:
                    break
                try:
                    if self.delay and answers:
                        time.sleep(self.delay)
                    if answers and self.cut_after is not None:
                        data, self.cut_after = data[: self.cut_after], None
                        target.send(data)
                        break
                    socket.send_fds(target, [data], descriptors)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> int:
        """Ends all connections, and returns how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(pairs)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.ended = True
        self.cut()
        for thread in self._threads:
            thread.join(5)
