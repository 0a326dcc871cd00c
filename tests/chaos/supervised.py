"""The server of a chaos run: started again whenever it ends, with its log read from a pipe that may be left unread."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from events import Events
from headrace import _binary

F_SETPIPE_SZ = 1031
OPENING = re.compile(rb"serving in .*; opening the sources took ([0-9.]+) s")


class Supervised:
    """Thread safety: any thread."""

    def __init__(self, config: Path, directory: Path, log: Path, events: Events, env: Mapping[str, str], cgroup: Path | None) -> None:
        self.address = str(directory)
        self.log, self.cgroup = log, cgroup
        self.starts: list[tuple[float, int]] = []  # when it was ready, and its process id
        self.reading = threading.Event()
        self.reading.set()
        self._config, self._events, self._env = config, events, {**os.environ, **env}
        self._parent = list(os.pipe())  # the server ends when the second one is closed, also by this process's death
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._popen: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._keep, name="supervisor")
        self._thread.start()

    @property
    def pid(self) -> int | None:
        popen = self._popen
        return popen.pid if popen and popen.returncode is None else None

    def _keep(self) -> None:
        while not self._stopping.is_set():
            popen, ready = self._start()
            with os.fdopen(ready, "rb") as pipe:
                if pipe.readline().startswith(b"ready "):
                    self.starts.append((self._events.add("ready", "server", popen.pid), popen.pid))
            with contextlib.suppress(ChildProcessError):  # signal() has noticed it
                os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)  # leaves the process id taken: nobody signals another process
            with self._lock:
                status = popen.wait()
            self._events.add("ended", "server", status)
            self._stopping.wait(0.05 if status < 0 else 0.2)

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        log_reader, log = os.pipe()
        fcntl.fcntl(log, F_SETPIPE_SZ, 4096)
        ready, writer = os.pipe()
        command = [_binary.path(), "serve", str(self._config), "--ready-fd", str(writer), "--parent-fd", str(self._parent[0])]
        with self._lock:
            popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writer, self._parent[0]], env=self._env,
                start_new_session=True,
            )  # fmt: skip
            if self.cgroup:
                with contextlib.suppress(OSError):  # it has ended
                    (self.cgroup / "cgroup.procs").write_text(str(popen.pid))
            self._popen = popen
        os.close(log)
        os.close(writer)
        self._readers = [thread for thread in self._readers if thread.is_alive()]
        reader = threading.Thread(target=self._read, args=(log_reader, popen.pid), name="log")
        reader.start()
        self._readers.append(reader)
        return popen, ready

    def _read(self, descriptor: int, pid: int) -> None:
        line = b""
        with os.fdopen(descriptor, "rb", buffering=0) as pipe, self.log.open("ab") as log:
            while True:
                self.reading.wait()
                if not select.select([pipe], [], [], 0.1)[0]:
                    continue
                part = pipe.read(65536)
                if not part:
                    return
                log.write(part)
                *lines, line = (line + part).split(b"\n")
                for opening in filter(None, map(OPENING.search, lines)):
                    self._events.add("opened", str(pid), float(opening[1]))

    def wait_ready(self, seconds: float = 30) -> None:
        """For the first start, before there are faults."""
        end = time.monotonic() + seconds
        while not self.starts:
            if time.monotonic() > end:
                raise RuntimeError(f"the server was not ready within {seconds:g} s; its log ends with:\n{self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> bool:
        """Whether there was a server to receive it."""
        with self._lock:
            if self._popen is None or self._popen.poll() is not None:
                return False
            self._popen.send_signal(number)
            return True

    def stop(self, seconds: float = 5) -> int | None:
        """SIGTERM; the exit status, or None if it did not end in time and was killed. May be called again."""
        self._stopping.set()
        self.reading.set()
        end = time.monotonic() + seconds
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        while self._thread.is_alive() and time.monotonic() < end:
            self._thread.join(0.05)
        in_time = not self._thread.is_alive()
        self.signal(signal.SIGKILL)
        self._thread.join()
        for reader in self._readers:
            reader.join()
        while self._parent:
            os.close(self._parent.pop())
        return self._popen.returncode if in_time and self._popen else None
