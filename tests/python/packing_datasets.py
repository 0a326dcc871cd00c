"""Datasets for the tests of headrace.pack(), and a program that packs one and may be killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import numpy as np


class Counted:
    """`count` samples of noise and a class; each call is a line in `log`."""

    def __init__(self, log: Path, count: int = 40, pause: float = 0, fails_at: int = -1, side: int = 8) -> None:
        self.log, self.count, self.pause, self.fails_at, self.side = log, count, pause, fails_at, side

    def __len__(self) -> int:
        return self.count

    def values(self, index: int) -> tuple[Any, int]:
        return np.random.default_rng(index).integers(0, 256, (self.side, self.side, 3), dtype=np.uint8), index % 3

    def __getitem__(self, index: int) -> tuple[Any, int]:
        with self.log.open("a") as log:
            log.write(f"{index}\n")
        if self.pause:
            time.sleep(self.pause)
        if index == self.fails_at:
            raise ValueError(f"no sample {index} today")
        return self.values(index)

    def calls(self) -> list[int]:
        """The calls since the last time."""
        lines = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(map(int, lines))


class Killed(Counted):
    """Kills the process that reads sample `fails_at`."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if index == self.fails_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Iterated:
    """A dataset that can only be iterated."""

    def __init__(self, real: Counted) -> None:
        self.real = real

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        return (self.real[index] for index in range(len(self.real)))


if __name__ == "__main__":
    log, out, count, side, pause, workers = sys.argv[1:]
    dataset = Counted(Path(log), count=int(count), side=int(side), pause=float(pause))
    headrace.pack(dataset, out, workers=int(workers))
