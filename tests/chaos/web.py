"""A file server on loopback that delays, resets, cuts and refuses responses at random, but never the same request so often that a stream fails."""

from __future__ import annotations

import hashlib
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MOST_IN_A_ROW = 3  # the server tries six times
DELAYED, BUSY, RESET, CUT = "delayed", "busy", "reset", "cut"
USUAL = {DELAYED: 0.04, BUSY: 0.02, RESET: 0.03, CUT: 0.03}


class Unreliable(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {f"/{file.name}": file.read_bytes() for file in folder.glob("*.tar")}
        self.tags = {path: f'"{hashlib.sha256(data).hexdigest()[:16]}"' for path, data in self.files.items()}
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.down = threading.Event()  # every request fails, as far as MOST_IN_A_ROW allows
        self.done: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._failed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, name="web")
        self._thread.start()

    def fault(self, request: str) -> tuple[str, float]:
        """What happens to a request, and for a delay how long."""
        with self._lock:
            drawn, amount = self._chance.random(), self._chance.random()
            kind = ""
            for name, often in USUAL.items():
                drawn -= often
                if drawn < 0:
                    kind = name
                    break
            if self.down.is_set() and kind in ("", DELAYED):
                kind = RESET
            if kind in (BUSY, RESET, CUT):
                self._failed[request] += 1
                if self._failed[request] > MOST_IN_A_ROW:
                    kind = ""
            if kind in ("", DELAYED):
                self._failed.pop(request, None)
            self.done[kind or "served"] += 1
            return kind, amount

    def handle_error(self, *_: Any) -> None:
        """Connections that a killed server leaves behind."""

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits until the client acknowledges the head
    timeout = 60
    server: Unreliable

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        kind, amount = self.server.fault(f"{self.path} {wanted.partition('-')[2]}")  # the rest of a cut reply has the same end
        if kind == DELAYED:
            time.sleep(amount)
        if kind == RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        data = self.server.files.get(self.path)
        if kind == BUSY or data is None:
            return self.reply(503 if kind == BUSY else 404, b"", {})
        tag = self.server.tags[self.path]
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
        if not part:
            return self.reply(200, data, {"ETag": tag}, kind == CUT)
        first, last = int(part[1]), min(int(part[2]), len(data) - 1)
        self.reply(206, data[first : last + 1], {"ETag": tag, "Content-Range": f"bytes {first}-{last}/{len(data)}"}, kind == CUT)

    def reply(self, status: int, body: bytes, headers: dict[str, str], cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut
