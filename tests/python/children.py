"""Trainers in separate processes, which tests kill, stop and interrupt."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import headrace
from running import wait_until

PRELUDE = """
import json, os, signal, sys, time
import headrace
import numpy as np

address = sys.argv[1]

def say(**line):
    print(json.dumps(line), flush=True)

def digest(batch):
    state = headrace.Digest()
    state.add(batch)
    return state.hexdigest()

"""


class Child:
    """Runs `code` after PRELUDE, with the server's address as its argument. It writes JSON lines."""

    def __init__(self, code: str, address: str, *arguments: str, cwd: Path | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, address, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd=cwd,
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def receive(self, seconds: float = 20) -> dict[str, Any]:
        """The child's next line."""
        assert self.process.stdout
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            ready = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))[0]
            assert ready, f"the child wrote no line within {seconds} s"
            part = self.process.stdout.read1(65536)  # type: ignore[attr-defined]
            assert part, f"the child ended with {self.process.wait()}:\n{self.errors()}"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        received: dict[str, Any] = json.loads(line)
        return received

    def read_bytes(self, count: int) -> bytes:
        """The child's next `count` bytes; fewer if it ended."""
        assert self.process.stdout
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        while len(data) < count:
            part: bytes = self.process.stdout.read1(count - len(data))  # type: ignore[attr-defined]
            if not part:
                break
            data += part
        return data

    def go_on(self) -> None:
        """Lets a child that waits in sys.stdin.readline() continue."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def errors(self) -> str:
        assert self.process.stderr
        return self.process.stderr.read().decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def fence(self, address: str) -> None:
        """Stops the child until the server has fenced it."""
        self.signal(signal.SIGSTOP)
        wait_until(
            lambda: any(c["fenced"] for stream in headrace.stats(address)["streams"].values() for c in stream["clients"]),
            "the fencing",
        )

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.go_on()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe
            pipe.close()
