"""The actor that owns a node's server. The server runs in a keeper (headrace/_keeper.py), which outlives the actor."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ray

from .._keeper import KEY, PREFIX, SOCKET
from .._log import LogTail
from ..errors import Closed, Error, ServerLost, from_code
from ._job import end_with_job, temporary_folder
from ._nodes import this_node
from ._remote import Plan, is_here

_KEEPER = 30.0  # seconds that a keeper may take besides its server's start
_ANSWER = 20.0  # seconds until a keeper must answer; it may be asking its server
_PAUSE = 1.0  # seconds between two questions
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
    for folder in sorted(Path(temporary_folder()).glob(f"{PREFIX}*")):
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
        "folder": name, "config": plan.path, "content": None if is_here(plan) else plan.text.decode("latin-1"), "env": plan.env, "set": plan.changes,
        "key": plan.key, "wait": plan.wait, "linger": plan.linger,
    }  # fmt: skip
    log = LogTail()
    try:
        made = subprocess.run(
            [sys.executable, "-m", "headrace._keeper"], input=json.dumps(spec, default=str).encode(), stdout=subprocess.PIPE, stderr=log.write,
            env={**os.environ, "TMPDIR": temporary_folder()}, timeout=plan.wait + _KEEPER, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise from_code("TIMEOUT", f"the server was not ready within {plan.wait + _KEEPER:g} s") from None
    finally:
        log.close_write_end()
    try:
        answer = json.loads(made.stdout)
    except ValueError:
        log.wait(1)
        raise Error(f"the server's keeper ended with status {made.returncode}:\n{log.text()}") from None
    if "error" in answer:
        raise from_code(answer["code"], answer["error"])
    return _Owned(Path(temporary_folder(), PREFIX + name), plan.key)


class ServerActor:
    """Owns the server of its node. If this actor's process is killed, its next one takes the server over.

    job   of a detached actor, which ends with it. It also ends if its server does not start for the first caller
    """

    def __init__(self, plan: Plan, job: str | None = None) -> None:
        self._plan, self._detached = plan, job is not None
        self._folder = f"{plan.key[:8]}-{plan.token}-{this_node()[:8]}"  # the same for each process of this actor, so the server's address stays
        self._lock = threading.Lock()  # guards the next one; held while a server starts
        self._owned: _Owned | None = None
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="headrace-owner", daemon=True)
        if job is not None:
            end_with_job(job, self.stop)
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self._watcher.start()  # nobody calls start() again

    def start(self) -> dict[str, Any]:
        """Starts the server if it does not run; returns its status. Raises the error with which it does not start, and Closed after
        stop()."""
        with self._lock:
            if self._stopped.is_set():
                raise Closed("the server was stopped")
            self._ask()
            if self._owned is not None and self._owned.status["drained"]:
                self._release()
            if self._owned is None:
                try:
                    self._owned = _taken_over(self._plan.key) or _started(self._plan, self._folder)
                    self._folder = self._owned.folder.name.removeprefix(PREFIX)
                except Exception:
                    if self._detached and not self._watcher.is_alive():
                        self._stopped.set()
                        end = threading.Timer(_PAUSE, ray.kill, [ray.get_runtime_context().current_actor])
                        end.start()  # after the caller has the error
                    raise
            if not self._watcher.is_alive():
                self._watcher.start()
            return self._owned.status

    def _ask(self) -> None:
        """Gets the server's status, or forgets a keeper that has ended."""
        if self._owned is not None:
            try:
                self._owned.status = self._owned.ask({"status": 1})
            except (OSError, Error):
                _logger.warning("headrace.ray: the server and its keeper ended; starting them again")
                self._owned.close()
                self._owned = None

    def _watch(self) -> None:
        while not self._stopped.wait(_PAUSE):
            try:
                with self._lock:
                    self._ask()
                    runs = self._owned is not None
                if not runs:
                    self.start()
            except Exception as error:
                if not self._stopped.is_set():
                    _logger.warning("headrace.ray: the server did not start again: %s", error)

    def _release(self) -> None:
        if self._owned is not None:
            with contextlib.suppress(OSError, Error):
                self._owned.stop()
            self._owned.close()
            self._owned = None

    def status(self) -> dict[str, Any]:
        """The server's address, metrics_url, pid and restarts, and the process id of its owner. Raises ServerLost while it starts."""
        owned = self._owned
        if owned is None:
            raise ServerLost("the server is starting")
        return {**owned.status, "owner_pid": os.getpid()}

    def stop(self) -> None:
        """Ends the server and its keeper, after a start that is under way."""
        self._stopped.set()
        with self._lock:
            self._release()
