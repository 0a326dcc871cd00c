"""Real processes for tests: a server over a config, a Prometheus over a server. Everything ends with its `with` block."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from headrace import _binary

ROOT = Path(__file__).resolve().parents[2]


def headrace_binary() -> str:
    """The binary under test: HEADRACE_BINARY, else the one of the installed package."""
    return _binary.path()


def copied_binary(folder: Path) -> str:
    """A copy of the binary under test, for users who cannot read the original, with the package's library."""
    (folder / "bin").mkdir()
    binary = Path(shutil.copy(headrace_binary(), folder / "bin"))
    library = Path(headrace_binary()).parent.parent / "libheadrace_server.so"
    if library.exists():  # not beside HEADRACE_BINARY, which has all of its code
        shutil.copy(library, folder)
    for path in folder.glob("**/*"):
        path.chmod(0o755)
    return str(binary)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """Polls until `true()` returns a true value, and returns it. At the timeout it fails with the given name."""
    end = time.monotonic() + seconds
    while True:
        value = true()
        if value:
            return value
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)


def http_get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as reply:
        body: bytes = reply.read()
    return body.decode()


class Process:
    """A child in its own process group, its output in a file."""

    def __init__(
        self,
        command: list[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
        user: int | None = None,
    ) -> None:
        self.log = log
        who: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=pass_fds,
                env={**os.environ, **(env or {})},
                **who,
            )

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def check_alive(self) -> None:
        status = self.popen.poll()
        assert status is None, f"{self.popen.args!r} ended with status {status}:\n{self.output()}"

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def stop(self, seconds: float = 15) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"SIGTERM did not end it in {seconds} s:\n{self.output()}") from None
        return self.popen.returncode


class Server(Process):
    """`headrace serve` over `config` (a dict); sockets, config and log are in `folder`. Running it as `user` needs root."""

    def __init__(
        self,
        config: dict[str, Any],
        folder: Path,
        env: Mapping[str, str] | None = None,
        binary: str | None = None,
        user: int | None = None,
    ) -> None:
        self.address = str(folder / "run")
        self.metrics_url = ""
        server = {"directory": self.address, "metrics": {"port": 0}, **config.get("server", {})}
        self.config = folder / "headrace.yaml"
        self.config.write_text(yaml.safe_dump({**config, "server": server}))
        self._ready, ready = os.pipe()
        try:
            command = [binary or headrace_binary(), "serve", str(self.config), "--ready-fd", str(ready)]
            super().__init__(command, folder / "server.log", env, pass_fds=(ready,), user=user)
        finally:
            os.close(ready)

    def wait_ready(self, seconds: float = 30) -> Server:
        """Waits until clients can attach; an end of file means that the server could not start."""
        with os.fdopen(self._ready) as pipe:
            assert select.select([pipe], [], [], seconds)[0], f"not ready after {seconds} s:\n{self.output()}"
            line = pipe.readline().split()
        if not line:
            self.popen.wait()
            self.check_alive()
        self.metrics_url = line[2]
        return self

    def metrics(self) -> str:
        return http_get(self.metrics_url + "/metrics")

    def stop(self, seconds: float = 15) -> int:
        status = super().stop(seconds)
        assert "seccomp:" not in self.output(), f"a server's own calls are refused:\n{self.output()}"
        return status
