"""The packaged server as a context manager."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _binary
from ._arguments import mapping, setting
from ._forks import release_in_children
from ._log import MOST_BYTES, LogTail
from ._ranks import close_idle
from ._scratch import Scratch
from .errors import EnvironmentFailed, Error, InvalidArgument, from_code

_EXIT_CODES = {2: "CONFIG_INVALID", 3: "ENVIRONMENT"}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0  # seconds between two starts of a server that crashes
_LONGEST_SCRATCH = 90  # bytes; with run/control.sock, at most the 107 of a socket
_logger = logging.getLogger("headrace")


def _ending(status: int) -> str:
    """How a process ended, for the log."""
    if status >= 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):  # a real-time signal has no name
        return f"was killed ({signal.Signals(-status).name})"
    return f"was killed (signal {-status})"


class Server:
    """A running `headrace serve`. It stops at the end of its `with` block, with stop(), or when this process ends.

    address       the server's directory, for Loader and the other functions
    metrics_url   the URL of its metrics and status page; None if `server.metrics` is off
    pid           the server's process id, which changes with a restart
    restarts      how often a server that had crashed was started again (`restart=True`)
    """

    def __init__(
        self, config: str | Path, wait: float, env: Mapping[str, str] | None, overrides: Mapping[str, object], restart: bool = False,
        scratch: Scratch | None = None,
    ) -> None:
        self.address = ""
        self.metrics_url: str | None = None
        self.restarts = 0
        self._wait = wait
        self._working_directory = os.getcwd()  # a restart finds the configuration where the first start did
        self._env = {**os.environ, **(env or {})}
        self._owner = os.getpid()
        self._lock = threading.Lock()  # no server starts after stop()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [_binary.path(), "serve", str(config)]
        for path, value in overrides.items():
            self._command += ["--set", setting(path, value)]
        self._log: LogTail | None = None
        self._earlier = ""  # the output of the starts before
        self._scratch = scratch
        self._parent_read, self._parent = os.pipe()  # the server ends when the second one is closed
        release_in_children(self, Server._release_in_child)  # the pipe would keep the server alive after this process's death
        try:
            self._command += self._default_directory()
            self._start()
        except BaseException:
            self.stop(grace=2)
            raise
        if restart:
            self._thread = threading.Thread(target=self._keep_running, name="headrace-restart", daemon=True)
            self._thread.start()

    def _default_directory(self) -> list[str]:
        """The option for a directory of this server's own. None where TMPDIR has no locks or leaves no room for a socket's path."""
        if self._scratch is None:
            try:
                self._scratch = Scratch("headrace-serve-")
            except EnvironmentFailed:
                return []
            if len(os.fsencode(self._scratch.path)) > _LONGEST_SCRATCH:
                return []
        return ["--default", f"server.directory={self._scratch.path / 'run'}"]

    def _start(self) -> None:
        """Starts the server, unless it was stopped, and waits until it is ready."""
        port = self.metrics_url.rpartition(":")[2] if self.metrics_url else "0"  # a restart keeps the port
        log = LogTail()
        ready_read, ready_write = os.pipe()
        with os.fdopen(ready_read, "rb", buffering=0) as ready:
            try:
                with self._lock:
                    if self._stopped.is_set():
                        return
                    self._earlier, self._log = self.log()[-MOST_BYTES:], log
                    self._process = subprocess.Popen(
                        [*self._command, "--default", f"server.metrics.port={port}"]
                        + ["--parent-fd", str(self._parent_read), "--ready-fd", str(ready_write)],
                        stdin=subprocess.DEVNULL,
                        stdout=log.write,
                        stderr=log.write,
                        pass_fds=(self._parent_read, ready_write),
                        start_new_session=True,
                        env=self._env,
                        cwd=self._working_directory,
                    )
            except OSError as error:
                raise from_code("ENVIRONMENT", f"the server's binary does not start: {error}") from error
            finally:
                os.close(ready_write)
                log.close_write_end()
            self._wait_ready(ready.fileno(), self._wait)

    def _keep_running(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            begun = time.monotonic()
            status = self._end_of(self._running())
            if self._stopped.is_set() or status == 0:  # 0: it was told to end, such as by drain()
                return
            if time.monotonic() - begun > 60:
                pause = _FIRST_PAUSE
            _logger.warning("headrace.serve: the server %s; restarting it in %g s", _ending(status), pause)
            if self._stopped.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                self._start()
            except Exception as error:  # whatever it is, the next attempt may succeed
                if not self._stopped.is_set():
                    _logger.warning("headrace.serve: the server did not start again: %s", error)
                    self._kill(self._running())  # it may have been too slow
                self.metrics_url = None  # its port may be taken
            else:
                self.restarts += not self._stopped.is_set()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @staticmethod
    def _end_of(process: subprocess.Popen[bytes]) -> int:
        """Waits for the end without Popen's lock, which a child forked meanwhile would inherit."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:  # it was waited for
            return process.wait()
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll()
        finally:
            os.close(descriptor)
        return process.wait()

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
        status = self._running().wait()
        assert self._log is not None
        self._log.wait(1)
        code = _EXIT_CODES.get(status, "INTERNAL")
        said = self._log.text().strip()
        # The binary's last line is "headrace: CODE: message".
        name, _, message = said.rpartition("headrace: ")[2].partition(": ")
        if message and name.isupper() and name.replace("_", "").isalpha():
            return from_code(name, message)
        return from_code(code, f"the server ended with status {status}; its output:\n{said}")

    @property
    def pid(self) -> int:
        """The process id of the server, which changes with a restart."""
        return self._running().pid

    def __repr__(self) -> str:
        return f"headrace.Server(address={self.address!r}, pid={self.pid})"

    def poll(self) -> int | None:
        """None while the server runs, else its exit status."""
        return self._running().poll()

    def log(self) -> str:
        """The server's output so far: at most its last megabyte."""
        return self._earlier + (self._log.text() if self._log else "")

    def stop(self, grace: float = 10.0) -> int:
        """Stops the server and returns its exit status. SIGTERM lets clients finish their leases; SIGKILL follows after `grace` seconds.
        Closes this process's loaders of the server first, except those in a loop. Does nothing in a forked child: the server is its
        parent's."""
        if os.getpid() != self._owner:
            return 0
        self._stopped.set()
        with self._lock:
            process = self._process
        if process is not None and process.poll() is None:
            try:
                close_idle(self.address)
            finally:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                self._kill(process)
        if self._thread is not None:
            self._thread.join(1)
        if self._log is not None:
            self._log.wait(1)
        self._close_parent_pipe()
        if self._scratch is not None:
            self._scratch.remove()
        return -1 if process is None else process.returncode

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _close_parent_pipe(self) -> None:
        for end in ("_parent", "_parent_read"):
            if getattr(self, end) >= 0:
                os.close(getattr(self, end))
                setattr(self, end, -1)

    def _release_in_child(self) -> None:
        self._close_parent_pipe()
        if self._log is not None:
            self._log.close_write_end()
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
    restart: bool = False,
    **overrides: Any,
) -> Server:
    """Starts the packaged server with the YAML file `config`, and waits until clients can attach.

    It uses a temporary directory and a free port for its metrics unless the configuration, an environment variable or an argument
    names them: pass `.address` to Loader.

    wait      seconds to wait until the server is ready; then raises Timeout
    env       additional environment variables of the server
    set       configuration values by dotted path, such as {"streams.train.batch_size": 32}
    restart   whether a server that crashes or is killed is started again: loaders wait for it (their reconnect_timeout) and
              continue with their next batch. The logger "headrace" says so. The pause before a start is 0.5 s, and doubles up to 10 s
              while the server ends within a minute; there is no last attempt. After drain() the server is not started again
    keywords  the same as `set`, with two underscores for each dot: server__threads=4

    If the server does not start, raises the error that it reports.
    """
    if not isinstance(config, str | os.PathLike):
        raise InvalidArgument(f"config: expected the path of a YAML file, found {type(config).__name__}; write the configuration to a file first")
    if not isinstance(restart, bool):
        raise InvalidArgument(f"restart={restart!r}: expected True or False")
    changed = mapping("set", set)
    for name in overrides:
        if "__" not in name and name not in ("server", "sources", "streams"):
            raise InvalidArgument(
                f"serve({name}=...): unknown argument; expected wait, env, set, restart, or a key of the configuration with two underscores "
                "for each dot, such as server__threads=4"
            )
    paths: dict[str, object] = {name.replace("__", "."): value for name, value in overrides.items()}
    return Server(config, wait, env, {**paths, **changed}, restart)
