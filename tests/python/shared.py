"""Shared by the tests of headrace.share(): a loader that counts its calls, and consumers in separate processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

BATCHES, ROWS = 7, 4


class Batches:
    """A miniature DataLoader: `batches` batches, different in each epoch. Counts the batches that were requested."""

    def __init__(self, batches: int = BATCHES, last: int = ROWS, pause: float = 0) -> None:
        self.batches, self.last, self.pause = batches, last, pause
        self.asked = 0
        self.epoch = -1

    def __len__(self) -> int:
        return self.batches

    def make(self, epoch: int, number: int) -> Any:
        rows = self.last if number == self.batches - 1 else ROWS
        random = np.random.default_rng((epoch, number))
        return random.integers(0, 256, (rows, 3, 5), dtype=np.uint8), np.arange(rows) + 100 * epoch + 10 * number

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        epoch = self.epoch
        for number in range(self.batches):
            time.sleep(self.pause)
            self.asked += 1
            yield self.make(epoch, number)


def equal(batch: Any, expected: Any) -> None:
    assert len(batch) == len(expected)
    for got, wanted in zip(batch, expected, strict=True):
        wanted = np.asarray(wanted)
        assert got.dtype == wanted.dtype
        assert np.array_equal(got, wanted)


started: list[subprocess.Popen[str]] = []  # processes started by a test, which may fail before they end


_LONGEST = 90  # seconds, below pytest's own limit: a test that reads what such a process prints comes to an end


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    bounded = f"import signal\nsignal.alarm({_LONGEST})\n{script}"
    command = [sys.executable, "-c", bounded, *map(str, arguments)]
    started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return started[-1]


CONSUMER = """
import json, sys, time
import headrace, numpy as np
address, epochs, pause, die_after = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
seen = []
try:
    loader = headrace.Loader(address, stream="train")
    for epoch in range(epochs):
        for batch in loader:
            seen.append((batch.epoch, batch.number, sum(int(np.asarray(a, np.float64).sum()) for a in batch)))
            print(json.dumps(seen[-1]), flush=True)
            time.sleep(pause)
            if die_after and len(seen) == die_after:
                time.sleep(1000)
    loader.close()
    print("end", flush=True)
except headrace.Error as error:
    print(json.dumps({"code": error.code, "message": error.message}), flush=True)
"""


class Consumer:
    """A trainer in a process of its own; prints (epoch, number, sum) of each batch."""

    def __init__(self, address: str, epochs: int = 1, pause: float = 0, die_after: int = 0) -> None:
        self.process = start(CONSUMER, address, epochs, pause, die_after)

    def line(self) -> Any:
        assert self.process.stdout is not None
        text = self.process.stdout.readline().strip()
        return text if text in ("", "end") else json.loads(text)

    def lines(self) -> list[Any]:
        assert self.process.stdout is not None
        out = [text if text == "end" else json.loads(text) for text in self.process.stdout.read().split("\n") if text]
        self.process.wait(20)
        return out

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def in_threads(work: Callable[[int], None], count: int) -> list[threading.Thread]:
    """Runs work(0), work(1), ... concurrently. After a failure it does not wait for the others."""
    threads = [threading.Thread(target=work, args=(which,), daemon=True) for which in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(_LONGEST)
        assert not thread.is_alive()


def sums(source: Batches, epochs: int) -> list[Any]:
    batches = [(epoch, number, source.make(epoch, number)) for epoch in range(epochs) for number in range(source.batches)]
    return [[epoch, number, sum(int(np.asarray(a, np.float64).sum()) for a in batch)] for epoch, number, batch in batches]
