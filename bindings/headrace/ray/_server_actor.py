"""The actor that owns a trainer node's server. The server runs in a keeper (headrace/_keeper.py), which outlives the actor."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from .._keeper import KEY, PREFIX, SOCKET
from .._log import LogTail
from ..errors import Error, ServerLost, from_code
from ._remote import Plan, configuration

_START = 90.0  # seconds until a server must be ready
_ANSWER = 20.0  # seconds until a keeper must answer; it may be asking its server
_PAUSE = 1.0
_logger = logging.getLogger("headrace")


class _Owned:
    """A connection to a keeper, as its owner."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._socket.settimeout(_ANSWER)
        try:
            self._socket.connect(str(folder / SOCKET))
            self.status = self.ask({"own": key})
        except BaseException:
            self._socket.close()
            raise

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._socket.send(json.dumps(what).encode())
            packet = self._socket.recv(4096)
        body: dict[str, Any] = json.loads(packet) if packet else {"taken": 1}
        if "taken" in body:
            raise ServerLost("the server's keeper ended")
        return body

    def stop(self) -> None:
        """Ends the server, and returns when its folder has been removed."""
        self.ask({"stop": 1})
        self._socket.recv(1)

    def close(self) -> None:
        self._socket.close()


def _taken_over(key: str) -> _Owned | None:
    """A server of this user with the same key that has lost its owner, such as by the death of Ray's head."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError, Error, ValueError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid() or (folder / KEY).read_text() != key:
                continue
            owned = _Owned(folder, key)
            _logger.warning("headrace.ray: took over the server in %s, which had lost its owner", owned.status["address"])
            return owned
    return None


def _started(plan: Plan, name: str) -> _Owned:
    """A new keeper with a server in the folder of this name. Raises the server's error."""
    spec = {
        "folder": name, "config": configuration(plan), "env": plan.env, "set": plan.changes, "key": plan.key, "linger": plan.linger,
    }
    log = LogTail()
    try:
        made = subprocess.run(
            [sys.executable, "-m", "headrace._keeper"], input=json.dumps(spec).encode(), stdout=subprocess.PIPE, stderr=log.write, timeout=_START,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise from_code("TIMEOUT", f"the server was not ready within {_START:g} s") from None
    finally:
        log.close_write_end()
    try:
        answer = json.loads(made.stdout)
    except ValueError:
        log.wait(1)
        raise Error(f"the server's keeper ended with status {made.returncode}:\n{log.text()}") from None
    if "error" in answer:
        raise from_code(answer["code"], answer["error"])
    return _Owned(Path(tempfile.gettempdir(), PREFIX + name), plan.key)


class ServerActor:
    """Owns the server of its node. After the death of this actor's process its next one takes the server over."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ready = threading.Event()
        self._stopped = threading.Event()
        self._owned: _Owned | None = None
        self._error: Error | None = None
        self._folder = f"{plan.key[:8]}-{plan.token}"  # stays the same, and so does the server's address
        threading.Thread(target=self._run, name="headrace-owner", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._owned = _taken_over(self._plan.key) or _started(self._plan, self._folder)
                self._folder = self._owned.folder.name.removeprefix(PREFIX)
                self._error = None
            except Exception as error:
                self._error = error if isinstance(error, Error) else Error(f"{type(error).__name__}: {error}")
                first = not self._ready.is_set()
                self._ready.set()
                if first:  # start() raises it
                    return
                _logger.warning("headrace.ray: the server did not start again: %s", error)
            self._ready.set()
            while self._owned is not None and not self._stopped.wait(_PAUSE):
                try:
                    self._owned.status = self._owned.ask({"status": 1})
                except (OSError, Error):
                    self._owned.close()
                    self._owned = None
                    if not self._stopped.is_set():
                        _logger.warning("headrace.ray: the server and its keeper ended; starting them again")
            self._stopped.wait(_PAUSE)

    def status(self) -> dict[str, Any]:
        """The server's address, metrics_url, pid and restarts. Raises the error with which it did not start."""
        if not self._ready.wait(_START + _ANSWER):
            raise from_code("TIMEOUT", f"the server was not ready within {_START + _ANSWER:g} s")
        owned = self._owned
        if owned is None:
            raise self._error or ServerLost("the server is starting again")
        return owned.status

    def stop(self) -> None:
        """Ends the server and its keeper."""
        self._stopped.set()
        owned, self._owned = self._owned, None
        if owned is not None:
            with contextlib.suppress(OSError, Error):
                owned.stop()
            owned.close()
