"""The packaged server as a context manager."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _binary
from ._forks import release_in_children
from ._log import LogTail
from .errors import Error, InvalidArgument, from_code

_EXIT_CODES = {2: "CONFIG_INVALID", 3: "ENVIRONMENT"}


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


class Server:
    """A running `headrace serve`. It stops at the end of its `with` block, with stop(), or when this process ends.

    address       the server's directory, for Loader and the other functions
    metrics_url   the URL of its metrics and status page; None if `server.metrics` is off
    """

    def __init__(
        self, config: str | Path, wait: float, env: Mapping[str, str] | None, overrides: Mapping[str, object]
    ) -> None:
        self.address = ""
        self.metrics_url: str | None = None
        self._log = LogTail()
        parent_read, self._parent = os.pipe()
        release_in_children(self, Server._release_in_child)  # the pipe would keep the server alive after this process's death
        ready_read, ready_write = os.pipe()
        command = [_binary.path(), "serve", str(config), "--parent-fd", str(parent_read), "--ready-fd", str(ready_write)]
        for path, value in overrides.items():
            command += ["--set", f"{path}={_scalar(value)}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log.write,
                stderr=self._log.write,
                pass_fds=(parent_read, ready_write),
                start_new_session=True,
                env=None if env is None else {**os.environ, **env},
            )
        except OSError as error:
            self._close_parent_pipe()
            os.close(ready_read)
            raise from_code("ENVIRONMENT", f"the server's binary does not start: {error}") from error
        finally:
            os.close(parent_read)
            os.close(ready_write)
            self._log.close_write_end()
        try:
            with os.fdopen(ready_read, "rb", buffering=0) as ready:
                self._wait_ready(ready.fileno(), wait)
        except BaseException:
            self.stop(grace=2)
            raise

    def _wait_ready(self, fd: int, wait: float) -> None:
        end = time.monotonic() + wait
        line = b""
        ready = select.poll()  # not select(), which supports descriptors up to 1023 only
        ready.register(fd, select.POLLIN)
        while not line.endswith(b"\n"):
            if not ready.poll(max(0.0, end - time.monotonic()) * 1000):
                raise from_code("TIMEOUT", f"the server was not ready within {wait:g} s; its output:\n{self.log()}")
            part = os.read(fd, 4096)
            if not part:
                raise self._failure()
            line += part
        # "ready DIRECTORY URL": the directory may have spaces.
        address, url = line.removeprefix(b"ready ").rstrip(b"\n").rsplit(b" ", 1)
        self.address = os.fsdecode(address)
        self.metrics_url = None if url == b"-" else url.decode()

    def _failure(self) -> Error:
        status = self._process.wait()
        self._log.wait(1)
        code = _EXIT_CODES.get(status, "INTERNAL")
        said = self.log().strip()
        # The binary's last line is "headrace: CODE: message".
        name, _, message = said.rpartition("headrace: ")[2].partition(": ")
        if message and name.isupper() and name.replace("_", "").isalpha():
            return from_code(name, message)
        return from_code(code, f"the server ended with status {status}; its output:\n{said}")

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def poll(self) -> int | None:
        """None while the server runs, else its exit status."""
        return self._process.poll()

    def log(self) -> str:
        """The server's output so far: at most its last megabyte."""
        return self._log.text()

    def stop(self, grace: float = 10.0) -> int:
        """Stops the server and returns its exit status. SIGTERM lets clients finish their leases; SIGKILL follows after `grace` seconds."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(grace)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._log.wait(1)
        self._close_parent_pipe()
        return self._process.returncode

    def _close_parent_pipe(self) -> None:
        if self._parent >= 0:
            os.close(self._parent)
            self._parent = -1

    def _release_in_child(self) -> None:
        self._close_parent_pipe()
        self._log.release()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def serve(
    config: str | Path,
    *,
    wait: float = 60.0,
    env: Mapping[str, str] | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002
    **overrides: Any,
) -> Server:
    """Starts the packaged server with the YAML file `config`, and waits until clients can attach.

    wait      seconds to wait until the server is ready; then raises Timeout
    env       additional environment variables of the server
    set       configuration values by dotted path, such as {"streams.train.batch_size": 32}
    keywords  the same, with two underscores for each dot: server__threads=4

    If the server does not start, raises the error that it reports.
    """
    if not isinstance(config, str | os.PathLike):
        raise InvalidArgument(f"config: expected the path of a YAML file, found {type(config).__name__}; write the configuration to a file first")
    if set is not None and not isinstance(set, Mapping):
        raise InvalidArgument(f"set={set!r}: expected a dict of dotted paths and values")
    paths: dict[str, object] = {name.replace("__", "."): value for name, value in overrides.items()}
    return Server(config, wait, env, {**paths, **(set or {})})
