"""A process that keeps a server while its owner lives, and afterwards as long as trainers are attached.

    python -m headrace._keeper < plan        {"folder", "config", "content", "env", "set", "key", "wait", "linger"}; prints {"address"} or {"error"}

`content`: of the configuration, where the file `config` does not have it. It is nobody's child, so that a server outlives the actor that asked for it: Ray ends every actor of a node some time after its head died. An
owner connects to keeper.sock in the keeper's folder. When it disconnects without having said "stop", the server goes on. A new owner with the
same key may take it over. Without an owner and without clients the server ends after `linger` seconds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ._scratch import Scratch
from .ask import stats
from .errors import Error
from .server import Server

PREFIX = "headrace-kept-"
SOCKET = "keeper.sock"
KEY = "key"
_TICK = 1.0  # seconds
_QUESTION = 5.0  # seconds that the server may take to list its clients
_logger = logging.getLogger("headrace")


class Keeper:
    """One server, and the socket on which its owner speaks: {"own": key}, {"status": 1}, {"stop": 1}."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._key, self._linger = plan["key"], plan["linger"]
        self._scratch = Scratch(PREFIX, plan["folder"])
        self._owner: socket.socket | None = None
        try:
            path = self._scratch.path / SOCKET
            path.unlink(missing_ok=True)  # of a keeper that was killed
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.bind(str(path))
            self._socket.listen(4)
            logging.basicConfig(filename=self._scratch.path / "keeper.log", format="%(asctime)s %(message)s")
            config = Path(plan["config"])
            if plan["content"] is not None:
                config = self._scratch.path / "config.yaml"
                config.write_bytes(plan["content"].encode("latin-1"))
            changes = {"server.directory": str(self._scratch.path / "run"), **plan["set"]}
            self._server = Server(config, plan["wait"], plan["env"], changes, True, self._scratch)
            (self._scratch.path / KEY).write_text(self._key)
        except BaseException:
            self._scratch.remove()
            raise
        self.address = self._server.address

    def run(self) -> None:
        alone_since = time.monotonic()
        while True:
            waiting = select.poll()
            for each in (self._socket, self._owner):
                if each is not None:
                    waiting.register(each, select.POLLIN)
            for descriptor, _ in waiting.poll(_TICK * 1000):
                if descriptor == self._socket.fileno():
                    self._welcome(self._socket.accept()[0])
                elif self._owner is not None and not self._heard(self._owner):
                    return
            if self._owner is not None or self._has_clients():
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > self._linger:
                return

    def close(self) -> None:
        status = self._server.stop()  # removes the folder
        if self._owner is not None:
            with contextlib.suppress(OSError):
                self._owner.send(json.dumps({"stopped": status}).encode())

    def _welcome(self, found: socket.socket) -> None:
        found.settimeout(2)
        with contextlib.suppress(OSError, ValueError):
            asked = json.loads(found.recv(4096))
            if self._owner is None and asked.get("own") == self._key:
                found.send(json.dumps(self._status()).encode())
                self._owner = found
                return
            found.send(b'{"taken": 1}')
        found.close()

    def _heard(self, owner: socket.socket) -> bool:
        """Answers one packet. Returns False for "stop"."""
        packet = b""
        with contextlib.suppress(OSError):
            packet = owner.recv(4096)
        if not packet:
            owner.close()
            self._owner = None
            _logger.warning("headrace.ray: the server's owner ended: Ray stopped here, or its driver did. The server goes on for its trainers")
            return True
        if b"stop" in packet:
            return False
        with contextlib.suppress(OSError):
            owner.send(json.dumps(self._status()).encode())
        return True

    def _status(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "metrics_url": self._server.metrics_url,
            "pid": self._server.pid,
            "restarts": self._server.restarts,
            "drained": self._server.poll() == 0,
        }

    def _has_clients(self) -> bool:
        try:
            streams = stats(self.address, timeout=_QUESTION)["streams"]
        except (Error, LookupError):
            return False
        return any(stream.get("clients") for stream in streams.values())


def main() -> int:
    answer = os.dup(1)
    plan = json.load(sys.stdin)
    if os.fork():
        os._exit(0)
    os.setsid()
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        keeper = Keeper(plan)
    except Exception as error:
        failed = error if isinstance(error, Error) else Error(f"{type(error).__name__}: {error}")
        os.write(answer, json.dumps({"error": failed.message, "code": failed.code}).encode())
        return 1
    os.write(answer, json.dumps({"address": keeper.address}).encode())
    os.close(answer)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        keeper.run()
    finally:
        keeper.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
